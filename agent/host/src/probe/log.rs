//! Text from kernel programs, for those who write them: an object built with `debug-log`, read from a file.

use std::borrow::Cow;
use std::path::PathBuf;

use aya::Ebpf;
use aya_log::EbpfLogger;

use super::error::ProbeError;

/// Names the object that is loaded instead of the embedded one.
pub const OBJECT: &str = "BRINK_PROBE_OBJECT";

/// Hands what the programs said since the last call to the process's `log` logger.
pub type Flush = Box<dyn FnMut() + Send>;

/// The object that [`OBJECT`] names, else the embedded one.
pub(super) fn object(embedded: &'static [u8]) -> Result<Cow<'static, [u8]>, ProbeError> {
    let Some(path) = std::env::var_os(OBJECT).map(PathBuf::from) else {
        return Ok(Cow::Borrowed(embedded));
    };
    let text = |error| ProbeError::Object(format!("{}: {error}", path.display()));
    std::fs::read(&path).map(Cow::Owned).map_err(text)
}

/// The reading end of the programs' text; `None` when the object was built without.
pub(super) fn open(object: &mut Ebpf) -> Option<Flush> {
    let mut logger = EbpfLogger::init(object).ok()?;
    Some(Box::new(move || logger.flush()))
}
