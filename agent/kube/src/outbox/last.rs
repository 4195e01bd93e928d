//! The last order that was put into the outbox, as a file's text.

use super::{Cause, Key};

/// The largest file that is read, in bytes.
pub const LARGEST: u64 = 4 << 10;

/// The order, if it was one of this boot.
///
/// # Errors
/// When the text is not what was written.
pub fn read(text: &[u8], boot: &str) -> Result<Option<u64>, serde_json::Error> {
    let key: Key = serde_json::from_slice(text)?;
    Ok(match key.of {
        Cause::Order(order) if key.boot == boot => Some(order),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_order_of_this_boot_counts() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(read(text.as_bytes(), "b").unwrap(), expected, "{text}");
        };
        check(r#"{"boot":"b","of":{"order":7}}"#, Some(7));
        check(r#"{"boot":"c","of":{"order":7}}"#, None);
        check(r#"{"boot":"b","of":{"oomKill":7}}"#, None);
        assert!(read(b"{\"boot\":\"b\"", "b").is_err());
        assert!(read(br#"{"boot":"b","of":{"order":-1}}"#, "b").is_err());
    }
}
