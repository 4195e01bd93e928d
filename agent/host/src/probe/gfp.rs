//! Names of allocation flags (`gfp_mask`), as the running kernel gives them: their bits move from version to version.
//!
//! The description of a tracepoint has them with the kernel's names for groups of them, and an evaluator of C's constant
//! expressions reads it. Where tracefs is not mounted, the type description of newer kernels has the single flags.

use super::btf::Btf;

/// An enumerator that stands where all of them stand.
const FIRST: &str = "___GFP_DMA_BIT";
/// Parentheses within each other that are followed.
const DEPTH: u32 = 32;

/// The flags by their bits, in the order in which they are looked for: groups first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GfpNames(Vec<(u32, String)>);

impl GfpNames {
    /// From the `format` file of a tracepoint that prints the flags. What is not understood is left out.
    pub fn of_format(text: &str) -> Option<Self> {
        let (_, flags) = text.split_once("__print_flags(")?;
        let entries = flags.split('{').skip(1).filter_map(|entry| {
            let (entry, _) = entry.split_once('}')?;
            let (expression, name) = entry.rsplit_once(',')?;
            let name = name.trim().trim_matches('"');
            Some((evaluate(expression)?, name.to_owned()))
        });
        Self::of(entries.collect())
    }

    /// From the kernel's types.
    pub fn of_types(btf: &Btf<'_>) -> Option<Self> {
        let flags = btf.enumerators_beside(FIRST).filter_map(|(name, bit)| {
            let name = name.strip_prefix("___GFP_")?.strip_suffix("_BIT")?;
            // Ends of the list, and holes in it.
            let is_flag = !name.starts_with("LAST") && !name.starts_with("UNUSED");
            let bits = 1_u32.checked_shl(u32::try_from(bit).ok()?)?;
            is_flag.then(|| (bits, format!("__GFP_{name}")))
        });
        Self::of(flags.collect())
    }

    fn of(mut flags: Vec<(u32, String)>) -> Option<Self> {
        flags.retain(|(bits, name)| *bits != 0 && !name.is_empty());
        (!flags.is_empty()).then_some(Self(flags))
    }

    /// The flags of a mask by name; what has none comes last, as a number.
    pub fn names(&self, mask: u32) -> Vec<String> {
        let mut rest = mask;
        let mut names = Vec::new();
        for (bits, name) in &self.0 {
            if rest & bits == *bits {
                rest &= !bits;
                names.push(name.clone());
            }
        }
        if rest != 0 {
            names.push(format!("{rest:#x}"));
        }
        names
    }
}

/// The value of a constant expression of `|`, `&`, `<<`, `~`, casts and numbers; none for any other.
fn evaluate(expression: &str) -> Option<u32> {
    let mut text = Text(expression);
    let value = text.any_of(DEPTH)?;
    // What is set above the flags is the rest of `~`.
    text.is_over()
        .then(|| u32::try_from(value & u64::from(u32::MAX)).ok())?
}

/// What is left to be read.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn is_over(&mut self) -> bool {
        self.0 = self.0.trim_start();
        self.0.is_empty()
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn any_of(&mut self, depth: u32) -> Option<u64> {
        let mut value = self.all_of(depth)?;
        while self.takes("|") {
            value |= self.all_of(depth)?;
        }
        Some(value)
    }

    fn all_of(&mut self, depth: u32) -> Option<u64> {
        let mut value = self.shifted(depth)?;
        while self.takes("&") {
            value &= self.shifted(depth)?;
        }
        Some(value)
    }

    fn shifted(&mut self, depth: u32) -> Option<u64> {
        let mut value = self.one(depth)?;
        while self.takes("<<") {
            let by = u32::try_from(self.one(depth)?).ok()?;
            value = value.checked_shl(by)?;
        }
        Some(value)
    }

    fn one(&mut self, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        if self.takes("~") {
            return Some(!self.one(depth)?);
        }
        if !self.takes("(") {
            return self.number();
        }
        if self.is_cast() {
            return self.one(depth);
        }
        let value = self.any_of(depth)?;
        self.takes(")").then_some(value)
    }

    /// Whether the parenthesis that was opened has the name of a type, which is passed by.
    fn is_cast(&mut self) -> bool {
        let Some((inside, rest)) = self.0.split_once(')') else {
            return false;
        };
        let inside = inside.trim();
        let is_name = inside.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && inside
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == ' ');
        if is_name {
            self.0 = rest;
        }
        is_name
    }

    fn number(&mut self) -> Option<u64> {
        let text = self.0.trim_start();
        let end = text.find(|letter: char| !letter.is_ascii_alphanumeric());
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.0 = rest;
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_of_the_kernel_are_numbers() {
        for (text, expected) in [
            ("( unsigned long)((( gfp_t)0x40u))", Some(0x40)),
            (
                "(unsigned long)(((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0x40u)))",
                Some(0xc40),
            ),
            ("( unsigned long)((((((1UL))) << (6))))", Some(0x40)),
            ("((0xc40u | 0x2u) & ~(( gfp_t)(0x400u|0x800u)))", Some(0x42)),
            ("( unsigned long)( gfp_t)0", Some(0)),
            ("( unsigned long)((1UL << ___GFP_IO_BIT))", None),
            ("IS_ENABLED(1) ? 2 : 0", None),
            ("(1", None),
            ("1 2", None),
            ("1 << 64", None),
            ("", None),
        ] {
            assert_eq!(evaluate(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mask_is_named_as_the_kernel_names_it() {
        let format = "print fmt: \"gfp_flags=%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
            {( unsigned long)(((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0x40u) | (( gfp_t)0x80u))), \"GFP_KERNEL\"}, \
            {( unsigned long)strange(1), \"GFP_STRANGE\"}, {( unsigned long)(( gfp_t)0x40u), \"__GFP_IO\"}, \
            {( unsigned long)(( gfp_t)0x100u), \"__GFP_ZERO\"}) : \"none\"\n";
        let names = GfpNames::of_format(format).unwrap();
        assert_eq!(names.names(0xdc0), ["GFP_KERNEL", "__GFP_ZERO"]);
        assert_eq!(names.names(0x8040), ["__GFP_IO", "0x8000"]);
        assert!(names.names(0).is_empty());
        assert_eq!(GfpNames::of_format("print fmt: \"%d\", REC->a"), None);
    }

    #[test]
    fn this_kernels_types_name_the_flags_if_they_have_them() {
        let Ok(raw) = fs::read("/sys/kernel/btf/vmlinux") else {
            return;
        };
        let btf = Btf::parse(&raw).unwrap();
        let Some(GfpNames(flags)) = GfpNames::of_types(&btf) else {
            assert_eq!(btf.enumerator("", FIRST), None);
            return;
        };
        let io = btf.enumerator("", "___GFP_IO_BIT").unwrap();
        assert!(flags.contains(&(1 << io, "__GFP_IO".to_owned())));
        assert!(flags.iter().all(|(bits, _)| bits.is_power_of_two()));
        assert!(!flags.iter().any(|(_, name)| name.contains("LAST")));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[{}()0-9a-z|&~<, \"]{0,200}") {
            let _none_or_some = GfpNames::of_format(&format!("__print_flags({text}"));
        }
    }
}
