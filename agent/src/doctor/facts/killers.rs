//! Other killers that run, and when they act, as far as their command line and files say.

use std::path::Path;

use brink_host::process::rivals::find;
use brink_host::process::{ProcessInfo, Rival, RivalKind};

use super::source::{Known, known, text};

/// Other killers.
#[derive(Debug)]
pub struct Killers {
    /// Those that run.
    pub rivals: Known<Vec<Killer>>,
}

/// A killer that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killer {
    /// Which, and where.
    pub rival: Rival,
    /// When it begins to act.
    pub limit: Limit,
    /// Whether it only says what it would do.
    pub is_dry: bool,
}

/// Below how much of `MemAvailable` a killer acts; swap must be short too, if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes.
    Bytes(u64),
    /// Hundredths of a percent, of what `of` says.
    Share {
        /// Hundredths of a percent.
        share: u32,
        /// Of what.
        of: Whole,
    },
    /// It goes by something else, or it is not known.
    Other,
}

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// `MemTotal`.
    Total,
    /// `MemAvailable + AnonPages` (earlyoom since 1.8).
    ForUsers,
}

impl Killers {
    /// Finds them under a root.
    pub fn read(root: &Path) -> Self {
        let rivals = known(find(root)).map(|rivals| {
            let killers = rivals.into_iter().map(|rival| killer(root, rival));
            killers.collect()
        });
        Self { rivals }
    }
}

fn killer(root: &Path, rival: Rival) -> Killer {
    let process = ProcessInfo::read(root, rival.pid).ok().flatten();
    let arguments = process.map_or_else(Vec::new, |process| process.command_line);
    let limit = match rival.kind {
        RivalKind::Earlyoom => earlyoom(&arguments),
        RivalKind::Nohang => nohang(root, &arguments),
        _ => Limit::Other,
    };
    Killer {
        rival,
        limit,
        is_dry: arguments.iter().any(|argument| argument == "--dryrun"),
    }
}

/// `-m PERCENT[,KILL]`, 10 by default; `-M KIB[,KILL]` may lower it, and alone stands for it.
fn earlyoom(arguments: &[String]) -> Limit {
    let value = |flag: &str| {
        let at = arguments
            .iter()
            .position(|argument| argument.starts_with(flag))?;
        let glued = arguments[at]
            .strip_prefix(flag)
            .filter(|rest| !rest.is_empty());
        let text = glued.or_else(|| arguments.get(at + 1).map(String::as_str))?;
        text.split(',').next()
    };
    let size = value("-M").and_then(|text| text.parse::<u64>().ok());
    let share = value("-m").and_then(hundredths);
    match (share, size) {
        // Which of the two is lower depends on the machine; its own choice is the lower one.
        (None, Some(kibibytes)) => Limit::Bytes(kibibytes.saturating_mul(1024)),
        (share, _) => Limit::Share {
            share: share.unwrap_or(1000),
            of: Whole::ForUsers,
        },
    }
}

/// `soft_threshold_min_mem = 5 %` (or `… M`) of the file named by `-c` or `--config`.
fn nohang(root: &Path, arguments: &[String]) -> Limit {
    let named = arguments
        .iter()
        .position(|argument| argument == "-c" || argument == "--config")
        .and_then(|at| arguments.get(at + 1));
    let path = named.map_or("/etc/nohang/nohang.conf", String::as_str);
    let Ok(text) = text(root, path) else {
        return Limit::Other;
    };
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix("soft_threshold_min_mem")?.trim_start();
        Some(rest.strip_prefix('=')?.trim())
    });
    let Some(value) = value else {
        return Limit::Other;
    };
    if let Some(share) = value.strip_suffix('%').map(str::trim).and_then(hundredths) {
        return Limit::Share {
            share,
            of: Whole::Total,
        };
    }
    let mebibytes = value.strip_suffix('M').map(str::trim);
    match mebibytes.and_then(|text| text.parse::<u64>().ok()) {
        Some(mebibytes) => Limit::Bytes(mebibytes.saturating_mul(1 << 20)),
        None => Limit::Other,
    }
}

/// `12.5` as 1250; what is not from 0 to 100 is none.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut cents = fraction.chars().chain("00".chars());
    let cents: String = cents.by_ref().take(2).collect();
    let whole: u32 = whole.parse().ok()?;
    let share = whole.checked_mul(100)?.checked_add(cents.parse().ok()?)?;
    (share <= 10_000).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlyooms_threshold_is_on_its_command_line() {
        fn check(arguments: &str, expected: Limit) {
            let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            assert_eq!(earlyoom(&arguments), expected, "{arguments:?}");
        }
        let share = |share| Limit::Share {
            share,
            of: Whole::ForUsers,
        };
        check("/usr/bin/earlyoom", share(1000));
        check("/usr/bin/earlyoom -r 3600 -m 5", share(500));
        check("/usr/bin/earlyoom -m 4,2 -s 10", share(400));
        check("/usr/bin/earlyoom -m4.5", share(450));
        check("/usr/bin/earlyoom -M 1048576,524288", Limit::Bytes(1 << 30));
        check("/usr/bin/earlyoom -M 1048576 -m 10", share(1000));
        check("/usr/bin/earlyoom -m", share(1000));
    }

    #[test]
    fn nohangs_threshold_is_in_its_file() {
        fn check(text: &str, expected: Limit) {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("etc/nohang");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("nohang.conf"), text).unwrap();
            assert_eq!(nohang(root.path(), &[]), expected, "{text:?}");
            let elsewhere = ["nohang", "-c", "/nowhere"].map(str::to_owned);
            assert_eq!(nohang(root.path(), &elsewhere), Limit::Other);
        }
        let share = |share| Limit::Share {
            share,
            of: Whole::Total,
        };
        check("# x\nsoft_threshold_min_mem = 5 %\n", share(500));
        check("soft_threshold_min_mem=12.5%", share(1250));
        check("soft_threshold_min_mem = 512 M\n", Limit::Bytes(512 << 20));
        check("hard_threshold_min_mem = 2 %\n", Limit::Other);
        check("soft_threshold_min_mem = lots\n", Limit::Other);
    }
}
