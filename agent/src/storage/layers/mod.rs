//! Writable layers: what containers have written beside their volumes, as their runtime tells it, where one is reached.

#[cfg(not(feature = "cri"))]
mod absent;
#[cfg(feature = "cri")]
mod asked;

#[cfg(not(feature = "cri"))]
pub(super) use absent::Layers;
#[cfg(feature = "cri")]
pub(super) use asked::Layers;
