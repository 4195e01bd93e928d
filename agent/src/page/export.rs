//! One incident as one file of HTML: data, script and style inside it, and a policy that allows nothing else.

use brink_stream::model::incident::Incident;

use super::bundle::{Asset, CHART, EXPORTED, EXPORTED_FRAME, INCIDENT, STYLE, WORDS};

/// The scripts of the file, in their order.
const SCRIPTS: [Asset; 4] = [WORDS, CHART, INCIDENT, EXPORTED];

/// The file. It asks for nothing when it is opened, and runs no script but the four of this version of Brink.
///
/// # Errors
/// When the incident cannot be written as JSON.
pub fn export(incident: &Incident) -> serde_json::Result<String> {
    let data = embedded(&serde_json::to_string(incident)?);
    let policy = policy();
    let scripts = scripts();
    let parts = [
        ("@POLICY@", policy.as_str()),
        ("@STYLE@", STYLE.text),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@INCIDENT@", &data),
        ("@SCRIPTS@", &scripts),
    ];
    let mut page =
        String::with_capacity(EXPORTED_FRAME.len() + STYLE.text.len() + scripts.len() + data.len());
    let mut rest = EXPORTED_FRAME;
    // The places are filled in their order: what was put in is never looked at again.
    for (place, text) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// JSON that can neither end the element it lies in nor open another.
fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn policy() -> String {
    let hashes = SCRIPTS.map(|script| format!("'sha256-{}'", script.sha256));
    format!(
        "default-src 'none'; script-src {}; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hashes.join(" "),
        STYLE.sha256,
    )
}

fn scripts() -> String {
    let element = |script: Asset| format!("<script>{}</script>\n", script.text);
    SCRIPTS.map(element).concat()
}

#[cfg(test)]
mod tests {
    use brink_stream::model::field::{Field, Missing};

    use super::*;

    const FULL: &str = include_str!("../../tests/page/incident-full.json");
    const BARE: &str = include_str!("../../tests/page/incident-bare.json");

    fn incident(text: &str) -> Incident {
        serde_json::from_str(text).unwrap()
    }

    /// The data that the file holds.
    fn data(page: &str) -> &str {
        let open = "<script type=\"application/json\" id=\"incident\">";
        let (_, rest) = page.split_once(open).unwrap();
        rest.split_once("</script>").unwrap().0
    }

    #[test]
    fn the_incident_can_be_read_from_the_file() {
        for text in [FULL, BARE] {
            let incident = incident(text);
            let page = export(&incident).unwrap();
            assert_eq!(
                serde_json::from_str::<Incident>(data(&page)).unwrap(),
                incident
            );
        }
    }

    #[test]
    fn no_name_gets_out_of_the_data() {
        let hostile = "</script><script>alert(1)</script><!-- @SCRIPTS@ \u{202e}\u{7}";
        let mut incident = incident(FULL);
        incident.victims[0].comm = hostile.to_owned();
        incident.victims[0].argv = Field::Value(vec![hostile.to_owned(); 2]);
        incident.evidence = vec![hostile.to_owned()];
        incident.memory_stat = Field::Missing(Missing::Lost);
        let page = export(&incident).unwrap();
        assert!(!data(&page).contains('<'));
        assert_eq!(page.matches("<script>").count(), SCRIPTS.len());
        assert_eq!(page.matches("</script>").count(), SCRIPTS.len() + 1);
        assert_eq!(
            serde_json::from_str::<Incident>(data(&page)).unwrap(),
            incident
        );
    }

    #[test]
    fn every_place_of_the_frame_is_filled() {
        let page = export(&incident(BARE)).unwrap();
        for place in [
            "@POLICY@",
            "@STYLE@",
            "@VERSION@",
            "@INCIDENT@",
            "@SCRIPTS@",
        ] {
            assert_eq!(EXPORTED_FRAME.matches(place).count(), 1, "{place}");
            assert!(!page.contains(place), "{place}");
        }
    }

    #[test]
    fn the_policy_allows_these_scripts_and_this_style_alone() {
        let page = export(&incident(BARE)).unwrap();
        for script in SCRIPTS {
            assert!(page.contains(&format!("<script>{}</script>", script.text)));
            assert!(policy().contains(script.sha256));
            // Either would end or hide the element, and the hash would be another one.
            assert!(!script.text.contains("</script") && !script.text.contains("<!--"));
        }
        assert!(page.contains(&format!("<style>{}</style>", STYLE.text)));
        assert!(!STYLE.text.contains("</style"));
        assert!(!policy().contains("unsafe"));
    }
}
