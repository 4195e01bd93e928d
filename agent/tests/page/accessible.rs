//! The page for those who do not see it or have no pointer, read from its files: names, heads, landmarks and the order of Tab.

use std::collections::{BTreeMap, BTreeSet};

use brink::page::bundle::{CHART, INCIDENT, LIVE, PAGE, WORDS};
use brink::page::export;

use crate::samples::{full, typed};

/// An element of a file.
#[derive(Debug, Default)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    /// All text inside of it.
    text: String,
}

impl Element {
    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

/// Elements without an end, among those that are used.
const VOID: [&str; 3] = ["meta", "link", "input"];

/// The elements of a file as we write it: every value quoted, and every element closed.
fn elements(html: &str) -> Vec<Element> {
    let (mut all, mut open): (Vec<Element>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut rest = html;
    while let Some((text, tail)) = rest.split_once('<') {
        for at in &open {
            all[*at].text.push_str(text);
        }
        let (tag, tail) = tail.split_once('>').expect("a tag is closed");
        rest = tail;
        if tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().map(|at| all[at].name.clone());
            assert_eq!(last.as_deref(), Some(name), "{name} is closed");
            continue;
        }
        let element = element(tag);
        let (name, at) = (element.name.clone(), all.len());
        all.push(element);
        if name == "script" || name == "style" {
            (_, rest) = rest.split_once(&format!("</{name}>")).expect("an end");
        } else if !VOID.contains(&&*name) {
            open.push(at);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

/// What stands between the brackets of a tag.
fn element(tag: &str) -> Element {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    let mut attributes = BTreeMap::new();
    while !rest.is_empty() {
        let (name, tail) = rest.split_at(rest.find(['=', ' ']).unwrap_or(rest.len()));
        let (value, tail) = match tail.strip_prefix("=\"") {
            Some(quoted) => quoted.split_once('"').expect("a value is closed"),
            None => ("", tail),
        };
        attributes.insert(name.to_owned(), value.to_owned());
        rest = tail.trim_start();
    }
    Element {
        name: name.to_owned(),
        attributes,
        text: String::new(),
    }
}

/// The page and an exported incident.
fn files() -> [(&'static str, Vec<Element>); 2] {
    let exported = export(&typed(&full())).unwrap();
    [
        ("page", elements(PAGE.text)),
        ("export", elements(&exported)),
    ]
}

#[test]
fn every_file_has_a_language_a_title_and_one_main_part() {
    for (file, all) in files() {
        let of = |name: &'static str| all.iter().filter(move |each| each.name == name);
        let languages: Vec<_> = of("html").map(|each| each.get("lang")).collect();
        assert_eq!(languages, [Some("en")], "{file}");
        let titles: Vec<_> = of("title").map(|each| each.text.trim()).collect();
        assert!(
            titles.len() == 1 && titles[0].contains("Brink"),
            "{file}: {titles:?}"
        );
        assert_eq!((of("main").count(), of("header").count()), (1, 1), "{file}");
        // Whoever needs larger letters may make them larger.
        let mut views = of("meta").filter(|each| each.get("name") == Some("viewport"));
        let view = views.next().and_then(|each| each.get("content")).unwrap();
        assert_eq!(view, "width=device-width, initial-scale=1", "{file}");
    }
}

#[test]
fn ids_are_there_once_and_what_is_referred_to_is_there() {
    for (file, all) in files() {
        let mut ids = BTreeSet::new();
        for id in all.iter().filter_map(|each| each.get("id")) {
            assert!(ids.insert(id), "{file}: {id} twice");
        }
        for element in &all {
            for reference in [
                "for",
                "aria-labelledby",
                "aria-describedby",
                "aria-controls",
            ] {
                let named = element.get(reference).unwrap_or_default();
                let missing = named.split_whitespace().find(|id| !ids.contains(id));
                assert_eq!(missing, None, "{file}: {element:?}");
            }
            let place = element.get("href").and_then(|href| href.strip_prefix('#'));
            if let Some(place) = place.filter(|place| !place.starts_with('/')) {
                assert!(ids.contains(place), "{file}: {element:?}");
            }
        }
    }
}

/// What an element is called: by itself, by a label, or by what it refers to.
fn name_of(all: &[Element], element: &Element) -> String {
    let by_id = |id: &str| {
        let found = all.iter().find(|each| each.get("id") == Some(id));
        found.map(|each| each.text.clone()).unwrap_or_default()
    };
    if let Some(label) = element.get("aria-label") {
        return label.to_owned();
    }
    if let Some(ids) = element.get("aria-labelledby") {
        return ids.split_whitespace().map(by_id).collect();
    }
    if ["input", "select", "textarea"].contains(&&*element.name) {
        let id = element.get("id").unwrap_or_default();
        let mut labels = all.iter().filter(|each| each.name == "label");
        let label = labels.find(|each| each.get("for") == Some(id));
        return label.map(|each| each.text.clone()).unwrap_or_default();
    }
    element.text.clone()
}

#[test]
fn every_control_and_every_part_has_a_name() {
    const NAMED: [&str; 8] = [
        "a", "button", "input", "select", "textarea", "summary", "form", "section",
    ];
    for (file, all) in files() {
        let named = all.iter().filter(|each| NAMED.contains(&&*each.name));
        for element in named {
            let name = name_of(&all, element);
            assert!(!name.trim().is_empty(), "{file}: {element:?}");
        }
    }
    let (_, page) = &files()[0];
    let controls = page
        .iter()
        .filter(|each| ["input", "select"].contains(&&*each.name));
    assert_eq!(controls.count(), 4, "those that are known to be there");
}

#[test]
fn headings_go_down_step_by_step() {
    let (_, all) = &files()[0];
    let levels = all
        .iter()
        .filter_map(|each| each.name.strip_prefix('h')?.parse::<u8>().ok());
    let levels: Vec<u8> = levels.collect();
    let (first, below) = levels.split_first().unwrap();
    assert!(*first == 1 && !below.contains(&1), "{levels:?}");
    assert!(
        levels.windows(2).all(|pair| pair[1] <= pair[0] + 1),
        "{levels:?}"
    );
    // An incident has its own, in its own article.
    let title = "el('article', { 'aria-labelledby': 'incident-title' },\n    el('h1', { id: 'incident-title'";
    assert!(INCIDENT.text.contains(title));
}

#[test]
fn nothing_goes_before_its_turn() {
    for (file, all) in files() {
        for element in &all {
            let turn = element.get("tabindex").unwrap_or("0");
            assert!(["0", "-1"].contains(&turn), "{file}: {element:?}");
            assert_eq!(element.get("accesskey"), None, "{file}: {element:?}");
            assert_eq!(element.get("autofocus"), None, "{file}: {element:?}");
        }
    }
    // The first that Tab reaches leads past the head.
    let (_, page) = &files()[0];
    let first = page.iter().find(|each| each.name == "a").unwrap();
    assert_eq!(
        (first.get("class"), first.get("href")),
        (Some("skip"), Some("#main"))
    );
}

/// Behind the text that begins at `at`, whatever its quotes are.
fn behind_text(code: &[u8], mut at: usize) -> usize {
    let quote = code[at];
    at += 1;
    loop {
        at = match code[at] {
            b'\\' => at + 2,
            found if found == quote => return at + 1,
            b'$' if quote == b'`' && code[at + 1] == b'{' => behind_brackets(code, at + 1),
            _ => at + 1,
        };
    }
}

/// Behind the brackets that open at `at`.
fn behind_brackets(code: &[u8], mut at: usize) -> usize {
    at += 1;
    loop {
        at = match code[at] {
            b'\'' | b'"' | b'`' => behind_text(code, at),
            b'(' | b'[' | b'{' => behind_brackets(code, at),
            b')' | b']' | b'}' => return at + 1,
            _ => at + 1,
        };
    }
}

/// What stands between these brackets, cut at its commas.
fn parts(code: &str) -> Vec<&str> {
    let bytes = code.as_bytes();
    let (mut found, mut from, mut at) = (Vec::new(), 1, 1);
    loop {
        match bytes[at] {
            b'\'' | b'"' | b'`' => at = behind_text(bytes, at),
            b'(' | b'[' | b'{' => at = behind_brackets(bytes, at),
            end @ (b',' | b')' | b']' | b'}') => {
                found.push(code[from..at].trim());
                (from, at) = (at + 1, at + 1);
                if end != b',' {
                    found.retain(|part| !part.is_empty());
                    return found;
                }
            }
            _ => at += 1,
        }
    }
}

/// The arguments of every call of a function in our scripts.
fn calls(function: &str) -> Vec<Vec<&'static str>> {
    let scripts = [WORDS, CHART, INCIDENT, LIVE].map(|asset| asset.text);
    let of_script = |code: &'static str| {
        let call = format!("{function}(");
        let found = code.match_indices(&call).map(|(at, _)| at);
        let found: Vec<usize> = found.collect();
        found.into_iter().filter_map(move |at| {
            let before = &code[..at];
            let is_other =
                before.ends_with(|last: char| last.is_alphanumeric() || "_.".contains(last));
            let is_it = !is_other && !before.ends_with("function ");
            is_it.then(|| parts(&code[at + function.len()..]))
        })
    };
    scripts.into_iter().flat_map(of_script).collect()
}

/// Calls of `el`: tag, attributes and children. Tags that are chosen at run time are left out.
fn made() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let of_call = |call: Vec<&'static str>| {
        let tag = call[0].strip_prefix('\'')?.strip_suffix('\'')?;
        let children = call.get(2..).unwrap_or_default().to_vec();
        Some((tag, call.get(1).copied().unwrap_or("null"), children))
    };
    let made: Vec<_> = calls("el").into_iter().filter_map(of_call).collect();
    assert!(made.len() > 60, "{}", made.len());
    made
}

#[test]
fn scripts_are_cut_where_their_calls_are() {
    assert_eq!(
        parts("(a, [b, c], `d${e(f, '`)')}`, 'g,', )"),
        ["a", "[b, c]", "`d${e(f, '`)')}`", "'g,'"]
    );
    assert_eq!(parts("[]"), Vec::<&str>::new());
}

#[test]
fn every_control_that_a_script_makes_has_a_name() {
    let all = made();
    let labels: Vec<&str> = all
        .iter()
        .filter(|made| made.0 == "label")
        .map(|made| made.1)
        .collect();
    for (tag, attributes, children) in &all {
        let whole = format!("el('{tag}', {attributes}, {children:?})");
        let is_named = attributes.contains("'aria-label':");
        match *tag {
            "a" | "button" | "summary" | "caption" | "label" | "h1" | "h2" | "h3" | "h4" => {
                assert!(is_named || !children.is_empty(), "{whole}");
            }
            "input" => assert!(is_named, "{whole}"),
            "select" => {
                let id = parts(attributes)
                    .into_iter()
                    .find_map(|part| part.strip_prefix("id: "));
                let label = format!("{{ for: {} }}", id.expect("an id"));
                assert!(labels.contains(&&*label), "{whole}");
            }
            "optgroup" => assert!(attributes.contains("label:"), "{whole}"),
            "details" => assert!(children[0].starts_with("el('summary'"), "{whole}"),
            "section" | "article" => assert!(attributes.contains("'aria-labelledby':"), "{whole}"),
            "img" | "iframe" | "video" | "audio" | "textarea" | "dialog" => {
                panic!("{whole}: say here what names it")
            }
            _ => {}
        }
    }
    for tag in [
        "a", "button", "input", "select", "summary", "optgroup", "details", "section",
    ] {
        assert!(all.iter().any(|made| made.0 == tag), "nothing makes {tag}");
    }
}

/// What is scrolled by keyboard is reached by Tab, and says what it is.
#[test]
fn what_a_script_lets_tab_reach_has_a_role_and_a_name() {
    let mut reached = 0;
    for (tag, attributes, _) in made() {
        let Some(turn) = parts(attributes_of(attributes))
            .into_iter()
            .find_map(|part| part.strip_prefix("tabindex: "))
        else {
            continue;
        };
        assert!(["0", "-1"].contains(&turn), "{tag}: {attributes}");
        if turn == "0" {
            reached += 1;
            assert!(
                attributes.contains("role: ") && attributes.contains("'aria-label': "),
                "{tag}: {attributes}"
            );
        }
    }
    assert!(reached > 0, "tables are");
}

/// Attributes in brackets, also where there are none.
fn attributes_of(written: &'static str) -> &'static str {
    if written.starts_with('{') {
        written
    } else {
        "{}"
    }
}

#[test]
fn every_table_has_a_caption_and_a_head_for_every_column() {
    let tables: Vec<_> = made()
        .into_iter()
        .filter(|made| made.0 == "table")
        .collect();
    let [(_, _, children)] = &tables[..] else {
        panic!("one function makes tables: {tables:?}");
    };
    assert!(
        children[0].starts_with("el('caption', null, caption)"),
        "{children:?}"
    );
    assert!(children[1].starts_with("el('thead'"), "{children:?}");
    for (tag, attributes, _) in made() {
        assert!(tag != "th" || attributes.contains("scope:"), "{attributes}");
    }
    // The first cell of a row is the head of that row.
    assert!(WORDS.text.contains(
        "el(index ? 'td' : 'th', { class: lookOf(heads[index]), scope: index ? null : 'row' }"
    ));

    let of_table = calls("table").into_iter().map(|call| (call[0], call[1]));
    let of_live = calls("liveTable")
        .into_iter()
        .map(|call| (call[1], call[2]));
    // Those of the victims have a name of their own, and `liveTable` hands on what it was given.
    let (_, victims) = INCIDENT.text.split_once("const heads = ").unwrap();
    let all = of_table
        .chain(of_live)
        .filter_map(|(caption, heads)| match heads {
            "heads" => (caption == "'Victims'").then_some((caption, victims)),
            heads => Some((caption, heads)),
        });
    let all: Vec<(&str, &str)> = all.collect();
    assert_eq!(all.len(), 18, "every table is looked at");
    for (caption, heads) in all {
        assert!(
            caption.trim_matches(['\'', '`']).len() > 3,
            "{caption}: {heads}"
        );
        for head in parts(heads) {
            let text = head
                .trim_matches(['\'', '`'])
                .trim_start_matches(['#', '~', '@']);
            assert!(
                head.starts_with("...") || !text.is_empty(),
                "{caption}: {heads}"
            );
        }
    }
}

/// A chart is a picture for those who see it: it is hidden from everybody else, has a name, a slider that tells its values,
/// and the same as a table.
#[test]
fn a_chart_is_hidden_where_its_words_are_told() {
    for call in calls("svg").into_iter().filter(|call| call[0] == "'svg'") {
        assert!(call[1].contains("'aria-hidden': 'true'"), "{call:?}");
    }
    let bars = made()
        .into_iter()
        .filter(|made| made.1.contains("class: 'bar'"));
    let bars: Vec<_> = bars.collect();
    assert!(
        !bars.is_empty()
            && bars
                .iter()
                .all(|bar| bar.1.contains("'aria-hidden': 'true'")),
        "{bars:?}"
    );
    let chart = made()
        .into_iter()
        .find(|made| made.1.contains("class: 'chart'"))
        .unwrap();
    assert!(
        chart.1.contains("role: 'group'") && chart.1.contains("'aria-label': name"),
        "{chart:?}"
    );
    assert!(CHART.text.contains("slider.setAttribute('aria-valuetext'"));
    assert!(
        INCIDENT
            .text
            .contains("[chart(name, panels, domain), more(id, `${name} as a table`, chartTable(")
    );
}

/// What changes by itself is told, and not at once whatever it is.
#[test]
fn news_are_told_politely() {
    let (_, page) = &files()[0];
    let of = |id: &str| page.iter().find(|each| each.get("id") == Some(id)).unwrap();
    assert_eq!(of("news").get("aria-live"), Some("polite"));
    for id in ["connection", "found"] {
        assert_eq!(of(id).get("role"), Some("status"), "{id}");
    }
    assert!(
        page.iter()
            .all(|each| each.get("aria-live") != Some("assertive"))
    );
}
