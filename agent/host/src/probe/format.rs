//! Parser of a tracepoint's `format` file: where each field lies in the running kernel's record.
//!
//! Layouts moved within stable series, so they are read, never assumed from the kernel's version.

use thiserror::Error;

/// One field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// its name, without brackets or stars
    pub name: String,
    /// bytes from the start of the record
    pub offset: u32,
    /// bytes
    pub size: u32,
    /// the kernel says the number is signed
    pub signed: bool,
    /// not the value but its place: 16 bits of offset, 16 bits of length
    pub data_loc: bool,
}

/// A tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// in the order of the file
    pub fields: Vec<Field>,
}

/// What is wrong with a `format` file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// a `field:` line that is not of the kernel's form
    #[error("line {line}: {text:?} is not a field description")]
    Line {
        /// counted from 1
        line: usize,
        /// what it says, at most 120 characters of it
        text: String,
    },
    /// no field at all
    #[error("no fields")]
    Empty,
}

impl Format {
    /// Reads every `field:` line; all other lines are of no interest.
    ///
    /// # Errors
    /// [`FormatError`] for a field that is not understood, or when there is none.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut fields = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(description) = line.trim_start().strip_prefix("field:") {
                let field = field(description).ok_or_else(|| FormatError::Line {
                    line: number + 1,
                    text: line.trim().chars().take(120).collect(),
                })?;
                fields.push(field);
            }
        }
        if fields.is_empty() {
            Err(FormatError::Empty)
        } else {
            Ok(Self { fields })
        }
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// `unsigned long total_vm; offset:16; size:8; signed:0;`, with tabs after the semicolons.
fn field(description: &str) -> Option<Field> {
    let mut parts = description.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut signed) = (None, None, None);
    for part in parts.filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once(':')?;
        match key {
            "offset" => offset = value.parse().ok(),
            "size" => size = value.parse().ok(),
            "signed" => signed = value.parse::<u8>().ok(),
            _ => {}
        }
    }
    // `char comm[16]` and `__data_loc char[] comm` both name `comm`.
    let name = declaration
        .rsplit(|c: char| c.is_whitespace() || c == '*')
        .next()?;
    let name = name.split('[').next()?;
    if name.is_empty() {
        return None;
    }
    Some(Field {
        name: name.to_owned(),
        offset: offset?,
        size: size?,
        signed: signed? != 0,
        data_loc: declaration.starts_with("__data_loc"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARK_VICTIM: &str = "name: mark_victim\nID: 609\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] comm;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long total_vm;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:short oom_score_adj;\toffset:64;\tsize:2;\tsigned:1;\n\n\
        print fmt: \"pid=%d field:x\", REC->pid\n";

    fn check(name: &str, expected: Option<(u32, u32, bool, bool)>) {
        let format = Format::parse(MARK_VICTIM).unwrap();
        let found = format
            .field(name)
            .map(|f| (f.offset, f.size, f.signed, f.data_loc));
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn fields_of_mark_victim() {
        check("pid", Some((8, 4, true, false)));
        check("comm", Some((12, 4, false, true)));
        check("total_vm", Some((16, 8, false, false)));
        check("oom_score_adj", Some((64, 2, true, false)));
        check("uid", None);
    }

    #[test]
    fn older_declarations() {
        let text = "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
                    \tfield:const char * p;\toffset:24;\tsize:8;\tsigned:0;\n";
        let format = Format::parse(text).unwrap();
        assert_eq!(format.field("comm").unwrap().size, 16);
        assert_eq!(format.field("p").unwrap().offset, 24);
    }

    #[test]
    fn faults_name_their_line() {
        assert_eq!(Format::parse("name: x\n"), Err(FormatError::Empty));
        let cut = "name: x\n\tfield:int pid;\toffset:eight;\tsize:4;\tsigned:1;\n";
        assert!(matches!(
            Format::parse(cut),
            Err(FormatError::Line { line: 2, .. })
        ));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(\t?field:[ -~\t;:\\[\\]*]{0,60}\n|[^\n]{0,40}\n){0,12}") {
            if let Ok(format) = Format::parse(&text) {
                prop_assert!(!format.fields.is_empty());
                prop_assert!(format.fields.iter().all(|field| !field.name.is_empty()));
            }
        }

        #[test]
        fn what_is_written_is_read(name in "[a-z_]{1,20}", offset in 0u32..10_000, size in 0u32..512, signed: bool) {
            let text = format!("\tfield:int {name};\toffset:{offset};\tsize:{size};\tsigned:{};\n", u8::from(signed));
            let format = Format::parse(&text).unwrap();
            let field = format.field(&name).unwrap();
            prop_assert_eq!((field.offset, field.size, field.signed), (offset, size, signed));
        }
    }
}
