//! The reference of events: kinds, fields and words, from the model's types and their comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;
use syn::{Attribute, Expr, Fields, Item, ItemEnum, ItemStruct, Lit, Meta, Type};

use super::Files;
use crate::workspace;

/// The model's files, in the order of the page.
const FILES: [&str; 6] = ["kind", "event", "data", "incident", "workloads", "field"];

/// The items of the model, by the name of their file.
pub(super) type Sources = BTreeMap<&'static str, Vec<Item>>;

/// `docs/events/fields.md`.
pub(super) fn make() -> anyhow::Result<Files> {
    let unkept = body_of(&read(FILES[0])?, "fn is_journalled");
    let page = page(&sources()?, &unkept);
    Ok(Files::from([("fields.md".to_owned(), page.into_bytes())]))
}

/// The model, parsed.
pub(super) fn sources() -> anyhow::Result<Sources> {
    let parsed = FILES.map(|name| {
        let file = syn::parse_file(&read(name)?).with_context(|| format!("parsing {name}.rs"))?;
        Ok((name, file.items))
    });
    parsed.into_iter().collect()
}

fn read(name: &str) -> anyhow::Result<String> {
    let path = workspace::root().join(format!("agent/stream/src/model/{name}.rs"));
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// What stands between the name of a function and the end of its body.
fn body_of(text: &str, name: &str) -> String {
    let (_, after) = text.split_once(name).unwrap_or_default();
    let (body, _) = after.split_once("\n    }\n").unwrap_or((after, ""));
    body.to_owned()
}

fn page(sources: &Sources, unkept: &str) -> String {
    let mut page = "# Kinds and fields of events\n\nMade from the types by `cargo xtask gen`. Within `brink.dev/v1alpha1` kinds and fields are only ever added. [Order, gaps and \
        incidents](../events.md).\n".to_owned();
    let items = |name: &str| sources.get(name).map_or(&[][..], Vec::as_slice);
    kinds(&mut page, (items("kind"), unkept), items("data"));
    for name in &FILES[1..] {
        for item in items(name) {
            match item {
                Item::Struct(found) if found.ident != "Draft" => fields(&mut page, found),
                Item::Enum(found) => words(&mut page, found),
                _ => {}
            }
        }
    }
    page
}

/// The kinds; those that `unkept` names are not journalled.
fn kinds(page: &mut String, (kinds, unkept): (&[Item], &str), data: &[Item]) {
    let is_kept = |name: &str| {
        !unkept
            .split(|letter: char| !letter.is_alphanumeric())
            .any(|word| word == name)
    };
    page.push_str("\n## Kinds\n\n| type | data | journalled | meaning |\n|---|---|---|---|\n");
    let variants = kinds.iter().filter_map(|item| match item {
        Item::Enum(found) if found.ident == "Kind" => Some(&found.variants),
        _ => None,
    });
    for variant in variants.flatten() {
        let name = variant.ident.to_string();
        let kept = if is_kept(&name) { "yes" } else { "no" };
        let of = data_of(&name, data);
        let meaning = comment(&variant.attrs);
        // Writing to a text cannot fail.
        let _written = writeln!(
            page,
            "| `{}` | {} | {kept} | {meaning} |",
            kebab(&name),
            linked(&of)
        );
    }
}

/// The struct whose comment names the kind.
pub(super) fn data_of(kind: &str, data: &[Item]) -> String {
    let mut structs = data.iter().filter_map(|item| match item {
        Item::Struct(found) => Some((found.ident.to_string(), comment(&found.attrs))),
        _ => None,
    });
    let named = structs.find(|(_, comment)| {
        comment.contains(&format!("`{kind}`")) || comment.contains(&format!("::{kind}`"))
    });
    named.map_or_else(|| "Incident".to_owned(), |(name, _)| name)
}

fn fields(page: &mut String, found: &ItemStruct) {
    let Fields::Named(fields) = &found.fields else {
        return;
    };
    let _written = write!(
        page,
        "\n## {}\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n",
        found.ident,
        comment(&found.attrs)
    );
    for field in &fields.named {
        let name = field
            .ident
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let name = renamed(&field.attrs).unwrap_or_else(|| camel(&name));
        let _written = writeln!(
            page,
            "| `{name}` | {} | {} |",
            type_words(&field.ty),
            comment(&field.attrs)
        );
    }
}

fn words(page: &mut String, found: &ItemEnum) {
    if found.ident == "Field" {
        let _written = write!(page, "\n## Field\n\n{}\n", comment(&found.attrs));
        return;
    }
    let _written = write!(
        page,
        "\n## {}\n\n{}\n\n| word | meaning |\n|---|---|\n",
        found.ident,
        comment(&found.attrs)
    );
    for variant in &found.variants {
        let word = camel(&snake(&variant.ident.to_string()));
        let _written = writeln!(page, "| `{word}` | {} |", comment(&variant.attrs));
    }
}

/// A type in words, with its own types linked.
fn type_words(of: &Type) -> String {
    let Type::Path(path) = of else {
        return String::new();
    };
    let Some(last) = path.path.segments.last() else {
        return String::new();
    };
    let inner: Vec<String> = match &last.arguments {
        syn::PathArguments::AngleBracketed(found) => {
            let types = found.args.iter().filter_map(|argument| match argument {
                syn::GenericArgument::Type(inner) => Some(type_words(inner)),
                _ => None,
            });
            types.collect()
        }
        _ => Vec::new(),
    };
    let first = inner.first().cloned().unwrap_or_default();
    match last.ident.to_string().as_str() {
        "Option" => format!("{first} or null"),
        "Field" => format!("[field](#field) of {first}"),
        "Vec" => format!("list of {first}"),
        "BTreeMap" => format!("map to {}", inner.last().cloned().unwrap_or_default()),
        "Box" | "Value" | "RawValue" => "JSON".to_owned(),
        "String" => "text".to_owned(),
        "bool" => "boolean".to_owned(),
        "f64" => "number".to_owned(),
        "u32" | "u64" | "i32" | "i64" => "integer".to_owned(),
        "Kind" => "[kind](#kinds)".to_owned(),
        own => linked(own),
    }
}

fn linked(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// What a comment says, as a cell of a table.
fn comment(attributes: &[Attribute]) -> String {
    described(attributes).replace('|', "\\|")
}

/// What a comment says, without the links that only rustdoc follows.
pub(super) fn described(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value().trim().to_owned()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        });
    unlinked(&lines.collect::<Vec<_>>().join(" "))
}

/// ``[`name`](path)`` as `` `name` ``.
fn unlinked(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        left.push_str(before);
        left.push('`');
        let (name, behind) = after.split_once("`]").unwrap_or((after, ""));
        left.push_str(name);
        left.push('`');
        rest = match behind
            .strip_prefix('(')
            .and_then(|path| path.split_once(')'))
        {
            Some((_, behind)) => behind,
            None => behind,
        };
    }
    left.push_str(rest);
    left
}

/// `#[serde(rename = "type")]`.
pub(super) fn renamed(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return None;
        };
        let text = list.tokens.to_string();
        let (_, after) = text.split_once("rename = \"")?;
        Some(after.split('"').next()?.to_owned())
    })
}

pub(super) fn camel(snake: &str) -> String {
    let mut parts = snake.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| {
        let mut letters = part.chars();
        let head = letters.next().map(|letter| letter.to_ascii_uppercase());
        name + &head.into_iter().chain(letters).collect::<String>()
    })
}

pub(super) fn snake(name: &str) -> String {
    separated(name, '_')
}

pub(super) fn kebab(name: &str) -> String {
    separated(name, '-')
}

fn separated(name: &str, between: char) -> String {
    let mut text = String::new();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            text.push(between);
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_wire() {
        for (found, expected) in [
            (camel("oom_score_adj"), "oomScoreAdj"),
            (camel(&snake("MemcgOom")), "memcgOom"),
            (kebab("OomKill"), "oom-kill"),
            (
                unlinked("[`Kind::Loss`](super::kind::Kind::Loss) of [`A`]."),
                "`Kind::Loss` of `A`.",
            ),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_page_has_every_kind_and_the_fields_of_its_data() {
        let files = make().unwrap();
        let page = String::from_utf8(files["fields.md"].clone()).unwrap();
        for row in [
            "| `oom-kill` | [Incident](#incident) | yes |",
            "| `workload-ended` | [Workload](#workload) | no |",
            "| `threshold-cleared` | [Threshold](#threshold) | yes |",
            "| `type` | [kind](#kinds) |",
            "| `oomScoreAdj` | [field](#field) of integer |",
            "| `kernelLacksIt` |",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
    }
}
