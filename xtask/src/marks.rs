//! The part of a page that is made by a command, between two marks.
use anyhow::bail;

const END: &str = "<!-- end of what is made -->";

/// Puts `content` between the marks of a page, which is given with its name; `by` is the command that makes it.
///
/// # Errors
/// When the page lacks one of the marks.
pub fn put((name, page): (&str, &str), by: &str, content: &str) -> anyhow::Result<String> {
    let begin = format!("<!-- made by `{by}`; do not edit -->");
    let parts = page
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        bail!("{name} lacks the lines `{begin}` and `{END}`");
    };
    Ok(format!("{before}{begin}\n\n{content}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_stands_between_the_marks() {
        let begin = "<!-- made by `a b`; do not edit -->";
        let page = format!("# Title\n\n{begin}\nold\n{END}\n\nmore\n");
        let fresh = put(("p.md", &page), "a b", "new\n").unwrap();
        assert_eq!(
            fresh,
            format!("# Title\n\n{begin}\n\nnew\n\n{END}\n\nmore\n")
        );
        assert_eq!(put(("p.md", &fresh), "a b", "new\n").unwrap(), fresh);
        let error = put(("p.md", "# Title\n"), "a b", "new\n").unwrap_err();
        assert!(error.to_string().starts_with("p.md lacks"), "{error}");
    }
}
