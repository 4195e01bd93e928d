//! The files of the page as they lie in the binary, with what a browser checks them by.

/// One file.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Where it is served.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its text.
    pub text: &'static str,
    /// SHA-256 of the text in base64: for policies, and as its `ETag`.
    pub sha256: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The live page itself.
pub const PAGE: Asset = Asset {
    path: "/",
    content_type: HTML,
    text: include_str!("assets/page.html"),
    sha256: "/ej6dKaeBcVm2/EdNRYWAqSWTzpYFMi8sYTXQQFB9Cw=",
};

/// How it looks.
pub const STYLE: Asset = Asset {
    path: "/assets/page.css",
    content_type: CSS,
    text: include_str!("assets/page.css"),
    sha256: "1QLSA5tzSk/MRaDG/5KXaA2JPvKcrkpOKz3W619WEZ8=",
};

/// Words, amounts and elements.
pub const WORDS: Asset = Asset {
    path: "/assets/words.js",
    content_type: SCRIPT,
    text: include_str!("assets/words.js"),
    sha256: "qnoO5Xpd6eIWGefD5cg6Qob0SWzuhaDaVMXa54djMF0=",
};

/// Charts.
pub const CHART: Asset = Asset {
    path: "/assets/chart.js",
    content_type: SCRIPT,
    text: include_str!("assets/chart.js"),
    sha256: "abwjYterW+ZkGplbdD4ToVA/lE0tVo3Ll/6n7Sf9umc=",
};

/// One incident.
pub const INCIDENT: Asset = Asset {
    path: "/assets/incident.js",
    content_type: SCRIPT,
    text: include_str!("assets/incident.js"),
    sha256: "ekzAvn743WZkHyQt4/wrID+54Ki27pgup48FyJukjKw=",
};

/// What asks the agent and listens to it.
pub const LIVE: Asset = Asset {
    path: "/assets/live.js",
    content_type: SCRIPT,
    text: include_str!("assets/live.js"),
    sha256: "qdfydrpea5LTbfn2zFOVcngH2/5Hlnm5D7d9BJMF0bg=",
};

/// What the exported file begins by; not served.
pub(super) const EXPORTED: Asset = Asset {
    path: "",
    content_type: SCRIPT,
    text: include_str!("assets/exported.js"),
    sha256: "g0aMJcot3+LNEnY8ItTFXs0pdU2992TX2eZ0OrRk4K0=",
};

/// What goes with every file that is served: only our own files are run, asked and shown, and nobody may frame or embed them.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
];

/// The frame of the exported file.
pub(super) const EXPORTED_FRAME: &str = include_str!("assets/exported.html");

/// Everything that is served.
pub const SERVED: [Asset; 6] = [PAGE, STYLE, WORDS, CHART, INCIDENT, LIVE];

#[cfg(test)]
mod tests {
    use brink_stream::model::kind::Kind;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// The most that the page may take of the locked text of the agent, in bytes.
    const MOST: usize = 64 << 10;

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits = (0..3).fold(0_usize, |bits, index| {
                bits << 8 | usize::from(group.get(index).copied().unwrap_or(0))
            });
            for place in 0..4 {
                let letter = LETTERS[bits >> (18 - 6 * place) & 63];
                text.push(if place > group.len() {
                    '='
                } else {
                    letter.into()
                });
            }
        }
        text
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn every_hash_is_that_of_its_text() {
        for asset in SERVED.iter().chain([&EXPORTED]) {
            let found = base64(&Sha256::digest(asset.text));
            assert_eq!(asset.sha256, found, "set this in {}", asset.path);
        }
    }

    #[test]
    fn the_bundle_stays_small() {
        let served = SERVED.iter().chain([&EXPORTED]);
        let size = served.map(|asset| asset.text.len()).sum::<usize>() + EXPORTED_FRAME.len();
        assert!(size <= MOST, "{size} bytes");
    }

    /// A word that the scripts must know, in quotes or as a key.
    fn check_known(asset: &Asset, word: &str) {
        let known = asset.text.contains(&format!("'{word}'"))
            || asset.text.contains(&format!("  {word}: "));
        assert!(known, "{word} in {}", asset.path);
    }

    #[test]
    fn every_word_of_the_model_is_known() {
        for kind in Kind::ALL {
            check_known(&LIVE, kind.word());
        }
        for word in [
            "memcgOom",
            "groupOom",
            "globalOom",
            "kernelOom",
            "eviction",
            "wouldEvict",
            "foreignKill",
            "kernelLacksIt",
            "programNotLoaded",
            "processGone",
            "notPermitted",
            "redacted",
            "notApplicable",
            "pending",
            "lost",
            "beforeStart",
            "malformed",
            "oomControl",
            "eventDelta",
            "underOom",
            "atLimit",
            "onlyLimit",
            "lastReclaim",
        ] {
            check_known(&WORDS, word);
        }
    }

    #[test]
    fn nothing_is_written_as_markup_and_nothing_is_fetched_from_elsewhere() {
        for asset in SERVED.iter().chain([&EXPORTED]) {
            for never in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
                "@import",
                "url(",
                " style=",
                " onclick=",
            ] {
                assert!(!asset.text.contains(never), "{never} in {}", asset.path);
            }
        }
    }
}
