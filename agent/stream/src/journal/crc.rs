//! CRC-32 (IEEE 802.3), a byte at a time: the journal writes little, and a table of 1 KiB is all this takes.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 {
                (rest >> 1) ^ 0xEDB8_8320
            } else {
                rest >> 1
            };
            bit += 1;
        }
        table[byte as usize] = rest;
        byte += 1;
    }
    table
}

/// The sum over `bytes`.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(!0u32, |sum, byte| {
        let [low, ..] = sum.to_le_bytes();
        (sum >> 8) ^ TABLE[usize::from(low ^ byte)]
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sum_of_the_standard() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
