//! The stop button as a file: while it is there nothing is killed. `brink pause` makes it, and so can anybody with the right.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brink_core::base::Span;
use brink_core::node::input::Control;
use jiff::Timestamp;

use super::kept;

/// Name of the file in the agent's folder under /run.
pub const FILE: &str = "pause";
/// Name of the one that has what the node's annotation in the Kubernetes API says.
const NODE_FILE: &str = "pause.node";

/// The file; what it says is when the pause ends, in RFC 3339, or nothing for "until further notice".
#[derive(Clone, Debug)]
pub struct StopButton {
    path: PathBuf,
    /// Another one that counts too.
    node: Option<PathBuf>,
}

/// What the file says, which stays the same while time goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There is no such file.
    Nothing,
    /// Until it is lifted. A file that cannot be read or understood counts so too: it is there.
    Forever,
    /// Until then.
    Until(Timestamp),
}

/// How the button stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressed {
    /// It is not.
    No,
    /// Until it is lifted.
    Forever,
    /// For so long.
    For(Duration),
}

/// What presses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presser {
    /// The file.
    File,
    /// The node's annotation.
    Annotation,
}

impl Presser {
    /// As it is told.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Annotation => "annotation",
        }
    }
}

impl fmt::Display for Pressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.write_str("lifted"),
            Self::Forever => f.write_str("pressed until it is lifted"),
            Self::For(left) => write!(f, "pressed for {} s more", left.as_secs()),
        }
    }
}

impl StopButton {
    /// The button in a folder.
    pub fn new(folder: &Path) -> Self {
        Self {
            path: folder.join(FILE),
            node: None,
        }
    }

    /// The same, pressed also while the node's is.
    #[must_use]
    pub fn with_node(self) -> Self {
        let node = self.path.with_file_name(NODE_FILE);
        Self {
            node: Some(node),
            ..self
        }
    }

    /// The node's in that folder: the annotation there, kept for a start without an API.
    pub fn of_node(folder: &Path) -> Self {
        Self {
            path: folder.join(NODE_FILE),
            node: None,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file says; of two what presses it longer.
    pub fn look(&self) -> Written {
        let node = self.node.as_deref().map(look);
        node.into_iter().fold(look(&self.path), Written::max)
    }

    /// What presses it now.
    pub fn pressers(&self) -> Vec<Presser> {
        let now = Timestamp::now();
        let is_pressed = |path: &Path| look(path).at(now) != Pressed::No;
        let file = is_pressed(&self.path).then_some(Presser::File);
        let node = self.node.as_deref().is_some_and(is_pressed);
        let annotation = node.then_some(Presser::Annotation);
        file.into_iter().chain(annotation).collect()
    }

    /// How it stands now.
    pub fn read(&self) -> Pressed {
        self.look().at(Timestamp::now())
    }

    /// Presses it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn press(&self, length: Option<Duration>) -> io::Result<()> {
        let until = length.map(|length| Timestamp::now().saturating_add(length));
        self.press_until(until.and_then(Result::ok))
    }

    /// The same up to a time.
    ///
    /// # Errors
    /// As [`Self::press`].
    pub fn press_until(&self, until: Option<Timestamp>) -> io::Result<()> {
        let text = until.map_or_else(String::new, |until| format!("{until}\n"));
        // In one go: a file that found no room for its time would press it until further notice.
        kept::write_bytes(&self.path, text.as_bytes())
    }

    /// Lifts it; a button that is not pressed is no error.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn lift(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

fn look(path: &Path) -> Written {
    // Anything else of that name presses it too, and a pipe would keep its reader waiting.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Written::Forever;
    }
    match fs::read_to_string(path) {
        Ok(text) => Written::of(text.trim()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Written::Nothing,
        Err(_) => Written::Forever,
    }
}

impl Pressed {
    /// What the engine is told.
    pub fn control(self) -> Control {
        match self {
            Self::No => Control::Unpause,
            Self::Forever => Control::Pause(None),
            Self::For(length) => {
                let nanos = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
                Control::Pause(Some(Span::from_nanos(nanos)))
            }
        }
    }
}

impl Written {
    fn of(text: &str) -> Self {
        text.parse().map_or(Self::Forever, Self::Until)
    }

    /// That which presses the button longer.
    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Until(one), Self::Until(other)) => Self::Until(one.max(other)),
            _ => Self::Forever,
        }
    }

    /// How the button stands at a time.
    pub fn at(self, now: Timestamp) -> Pressed {
        let until = match self {
            Self::Nothing => return Pressed::No,
            Self::Forever => return Pressed::Forever,
            Self::Until(until) => until,
        };
        match Duration::try_from(until.duration_since(now)) {
            Ok(left) if !left.is_zero() => Pressed::For(left),
            _ => Pressed::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_says() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("", Pressed::Forever),
            (
                "2026-01-01T00:00:10Z",
                Pressed::For(Duration::from_secs(10)),
            ),
            ("2025-12-31T23:59:59Z", Pressed::No),
            ("tomorrow", Pressed::Forever),
        ] {
            assert_eq!(Written::of(text).at(now), expected, "{text:?}");
        }
    }

    #[test]
    fn a_button_that_cannot_be_pressed_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let button = StopButton::new(folder.path());
        // As on a full disk: there can be a file, and nothing in it.
        fs::create_dir(folder.path().join("pause.new")).unwrap();
        assert!(button.press(Some(Duration::from_mins(1))).is_err());
        assert_eq!(button.read(), Pressed::No);
    }

    #[test]
    fn of_two_the_one_that_lasts_longer_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (own, node) = (
            StopButton::new(folder.path()),
            StopButton::of_node(folder.path()),
        );
        let both = own.clone().with_node();
        let later = |seconds: i64| Timestamp::from_second(4_000_000_000 + seconds).unwrap();
        node.press_until(Some(later(5))).unwrap();
        assert_eq!(
            (own.look(), both.look()),
            (Written::Nothing, Written::Until(later(5)))
        );
        assert_eq!(both.pressers(), [Presser::Annotation]);
        own.press_until(Some(later(3))).unwrap();
        assert_eq!(both.look(), Written::Until(later(5)));
        own.press(None).unwrap();
        assert_eq!(both.look(), Written::Forever);
        assert_eq!(both.pressers(), [Presser::File, Presser::Annotation]);
        node.press_until(Some(Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(both.pressers(), [Presser::File], "the other one is over");
        own.lift().unwrap();
        node.lift().unwrap();
        assert_eq!(both.look(), Written::Nothing);
        assert_eq!(both.pressers(), []);
    }

    #[test]
    fn pressed_and_lifted() {
        let folder = tempfile::tempdir().unwrap();
        let button = StopButton::new(folder.path());
        assert_eq!(button.read(), Pressed::No);
        button.press(None).unwrap();
        assert_eq!(button.read(), Pressed::Forever);
        button.press(Some(Duration::from_mins(1))).unwrap();
        assert!(matches!(button.read(), Pressed::For(left) if left <= Duration::from_mins(1)));
        button.lift().unwrap();
        button.lift().unwrap();
        assert_eq!(button.read(), Pressed::No);
    }
}
