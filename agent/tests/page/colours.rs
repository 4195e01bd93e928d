//! The colours of the page against each other, light and dark: whether everything can be read, without a browser.

use std::collections::BTreeMap;

use brink::page::bundle::STYLE;

/// Least contrast of text, and of what tells something without being text (WCAG 2.2, 1.4.3 and 1.4.11).
const TEXT: f64 = 4.5;
const SHAPE: f64 = 3.0;

/// Red, green and blue, each from 0 to 1.
type Colour = [f64; 3];

/// A colour of `#rgb` or `#rrggbb`.
fn colour(text: &str) -> Colour {
    let digits = text
        .strip_prefix('#')
        .unwrap_or_else(|| panic!("no colour: {text}"));
    let digit = |at: usize| u8::from_str_radix(&digits[at..=at], 16).unwrap();
    [0, 1, 2].map(|channel| match digits.len() {
        3 => f64::from(digit(channel) * 17) / 255.0,
        6 => f64::from(digit(2 * channel) * 16 + digit(2 * channel + 1)) / 255.0,
        _ => panic!("no colour: {text}"),
    })
}

/// Relative luminance as WCAG has it.
fn luminance(colour: Colour) -> f64 {
    let linear = |part: f64| {
        if part <= 0.040_45 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    };
    let [red, green, blue] = colour.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: Colour, other: Colour) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// What `filter: grayscale(1)` makes of a colour.
fn gray(colour: Colour) -> Colour {
    let [red, green, blue] = colour;
    [0.2126 * red + 0.7152 * green + 0.0722 * blue; 3]
}

/// So much of a colour over another one.
fn mixed(share: f64, colour: Colour, under: Colour) -> Colour {
    [0, 1, 2].map(|at| colour[at] * share + under[at] * (1.0 - share))
}

/// The variables of the style in one of the two schemes: 0 is light, 1 is dark.
fn variables(scheme: usize) -> BTreeMap<&'static str, Colour> {
    let (_, root) = STYLE.text.split_once(":root {").unwrap();
    let (root, _) = root.split_once('}').unwrap();
    let of_line = |line: &'static str| {
        let (name, value) = line.trim().strip_prefix("--")?.split_once(':')?;
        let pair = value
            .trim()
            .strip_prefix("light-dark(")?
            .strip_suffix(");")?;
        let each = pair.split(',').nth(scheme)?;
        Some((name, colour(each.trim())))
    };
    root.lines().filter_map(of_line).collect()
}

/// Selectors, property and value of every declaration outside of the variables.
fn declarations() -> Vec<(&'static str, &'static str, &'static str)> {
    let (_, rules) = STYLE.text.split_once('}').unwrap();
    let rules = rules.split('}').filter_map(|rule| rule.rsplit_once('{'));
    let each = rules.flat_map(|(head, body)| {
        // The head of a rule inside of another one follows that one's.
        let head = head.rsplit('{').next().unwrap_or(head).trim();
        let parts = body.split(';').filter_map(|part| part.split_once(':'));
        parts.map(move |(property, value)| (head, property.trim(), value.trim()))
    });
    each.collect()
}

/// The variables that any of these properties is set to.
fn used(properties: &[&str]) -> Vec<(&'static str, &'static str)> {
    let of_them = declarations()
        .into_iter()
        .filter(|(_, property, _)| properties.contains(property));
    let names = of_them.flat_map(|(head, _, value)| {
        let names = value
            .split("var(--")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        names.map(move |(name, _)| (head, name))
    });
    names.collect()
}

#[track_caller]
fn check(scheme: usize, what: &str, (one, other): (Colour, Colour), least: f64) {
    let found = contrast(one, other);
    let scheme = ["light", "dark"][scheme];
    assert!(
        found >= least,
        "{what}, {scheme}: {found:.2}, and {least} is the least"
    );
}

#[test]
fn contrast_is_that_of_the_guidelines() {
    let of = |one, other| contrast(colour(one), colour(other));
    for (one, other, expected) in [
        ("#000", "#fff", 21.0),
        ("#fff", "#ffffff", 1.0),
        ("#777777", "#fff", 4.478),
        ("#767676", "#fff", 4.542),
    ] {
        assert!(
            (of(one, other) - expected).abs() < 0.001,
            "{one} {other}: {}",
            of(one, other)
        );
    }
}

/// A text may stand on the page itself and on what is raised above it, whichever it is.
#[test]
fn every_text_can_be_read_on_every_ground() {
    let texts = used(&["color", "fill"]);
    let grounds = used(&["background"]);
    let is_ground = |name: &str| grounds.iter().any(|(_, ground)| *ground == name);
    assert!(is_ground("paper") && is_ground("raised"), "{grounds:?}");
    for name in ["ink", "faint", "link", "good", "warn", "bad"] {
        assert!(
            name == "ink" || texts.iter().any(|(_, text)| *text == name),
            "{name} in {texts:?}"
        );
    }
    for scheme in [0, 1] {
        let known = variables(scheme);
        assert!(known.len() >= 13, "{known:?}");
        let ink = [("body", "ink")];
        for (head, text) in texts.iter().chain(&ink) {
            for ground in ["paper", "raised"] {
                let pair = (known[text], known[ground]);
                check(scheme, &format!("{head}: {text} on {ground}"), pair, TEXT);
                // As it is while the agent does not answer.
                let pair = (gray(pair.0), gray(pair.1));
                check(
                    scheme,
                    &format!("{head}: stale {text} on {ground}"),
                    pair,
                    TEXT,
                );
            }
        }
    }
}

/// Lines of charts, edges of controls, the outline of what has the focus, and the bars.
#[test]
fn every_shape_that_tells_something_can_be_seen() {
    // Lines between rows, and of a chart's scale, tell nothing that its words do not.
    let decoration = ["rule"];
    let mut shapes = used(&[
        "stroke",
        "outline",
        "border",
        "border-color",
        "border-left",
        "accent-color",
    ]);
    shapes.retain(|(_, name)| !decoration.contains(name));
    for name in [
        "s0", "s1", "s2", "s3", "ink", "bad", "warn", "link", "faint",
    ] {
        assert!(
            shapes.iter().any(|(_, shape)| *shape == name),
            "{name} in {shapes:?}"
        );
    }
    for scheme in [0, 1] {
        let known = variables(scheme);
        for (head, shape) in &shapes {
            for ground in ["paper", "raised"] {
                let pair = (known[shape], known[ground]);
                check(scheme, &format!("{head}: {shape} on {ground}"), pair, SHAPE);
            }
        }
        for ground in ["paper", "raised"] {
            let track = mixed(0.6, known["rule"], known[ground]);
            for fill in ["s0", "bad", "ink"] {
                check(
                    scheme,
                    &format!("{fill} in a bar on {ground}"),
                    (known[fill], track),
                    SHAPE,
                );
            }
        }
    }
}

/// What is told by the tables above holds only if nothing else makes a colour.
#[test]
fn colours_come_from_the_variables_alone() {
    let properties = [
        "color",
        "fill",
        "stroke",
        "background",
        "border",
        "border-color",
        "border-left",
        "border-bottom",
        "outline",
        "accent-color",
    ];
    let words = [
        "none",
        "inherit",
        // That of a text, which is held to more.
        "currentColor",
        "px",
        "solid",
        "dashed",
        "transparent",
        "1px",
        "2px",
        "3px",
        "4px",
        "0",
    ];
    for (head, property, value) in declarations() {
        assert!(
            ![
                "opacity",
                "mix-blend-mode",
                "background-color",
                "outline-color"
            ]
            .contains(&property),
            "{head}: {property}"
        );
        assert!(
            !value.contains('#') && !value.contains("rgb(") && !value.contains("hsl("),
            "{head}: {value}"
        );
        if property == "filter" {
            assert_eq!(value, "grayscale(1)", "{head}");
        }
        if properties.contains(&property) && !value.contains("color-mix(") {
            let mut parts = value.split_whitespace();
            let odd = parts.find(|part| !part.starts_with("var(--") && !words.contains(part));
            assert_eq!(odd, None, "{head}: {property}: {value}");
        }
    }
    // The one mixture is the track of a bar.
    assert_eq!(STYLE.text.matches("color-mix(").count(), 1);
    assert!(
        STYLE
            .text
            .contains("background: color-mix(in srgb, var(--rule) 60%, transparent)")
    );
    let root = STYLE.text.split_once('}').unwrap().0;
    let missing = root
        .lines()
        .filter(|line| line.trim_start().starts_with("--"));
    assert_eq!(
        missing.count(),
        variables(0).len(),
        "a variable has no light-dark()"
    );
    assert_eq!(
        variables(0).keys().collect::<Vec<_>>(),
        variables(1).keys().collect::<Vec<_>>()
    );
}
