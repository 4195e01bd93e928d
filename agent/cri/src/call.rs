//! One call of the interface: what is asked, of whom, and what is answered.

pub use prost::Message;
use prost::bytes::Buf;

/// What is asked, and with it where: the file that is made from the interface has one for each call that is known.
pub trait Call: Message + Default + 'static {
    /// The path of the call, `/package.Service/Method`.
    const PATH: &'static str;
    /// What is answered.
    type Answer: Message + Default + 'static;
}

/// Reads the answer to a call.
///
/// # Errors
/// When the bytes are no such message.
pub fn read<C: Call>(bytes: impl Buf) -> Result<C::Answer, prost::DecodeError> {
    C::Answer::decode(bytes)
}
