//! The one promise that lets bytes be shared: plain integers, every bit pattern valid, no padding.

/// Types whose bytes may be copied between kernel and user space as they are.
///
/// # Safety
/// The type is `#[repr(C)]`, holds integers or arrays of them only, has no padding and no invalid bit pattern.
pub unsafe trait Plain: Copy + 'static {
    /// All bytes zero.
    const ZERO: Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        // SAFETY: an integer has neither padding nor an invalid bit pattern.
        unsafe impl Plain for $integer {
            const ZERO: Self = 0;
        }
    )*};
}
integers!(u8, u16, u32, u64, i16, i32, i64);

// SAFETY: an array of plain elements has no bytes beside theirs.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

/// The bytes of `value`.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so each of its bytes is initialised; the slice lives as long as the borrow.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The first `size_of::<T>()` bytes as a `T`; `None` when there are fewer. No alignment is asked of `bytes`.
pub fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    let head = bytes.get(..size_of::<T>())?;
    // SAFETY: `head` holds exactly the bytes of a `T`, and every bit pattern of a `Plain` type is valid.
    Some(unsafe { head.as_ptr().cast::<T>().read_unaligned() })
}

/// Declares a shared structure: C layout, all fields plain, and a build error if the compiler would pad it.
macro_rules! shared {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        const _: () = assert!(
            size_of::<$name>() == 0 $(+ size_of::<$type>())*,
            "the compiler pads this shared structure"
        );

        // SAFETY: `repr(C)`, plain fields only, and the assertion above excludes padding.
        unsafe impl $crate::Plain for $name {
            const ZERO: Self = Self { $($field: <$type as $crate::Plain>::ZERO,)* };
        }

        impl Default for $name {
            fn default() -> Self {
                <Self as $crate::Plain>::ZERO
            }
        }
    };
}
pub(crate) use shared;
