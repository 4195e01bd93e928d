//! `brink top` beside a real agent: its page for scripts, and in a pseudo-terminal over a restart, help, and every way to end.

use std::fs::File;
use std::io;
use std::process::{Child, Command, Stdio};

use crate::support::{Node, PATIENCE};
use brink_tests::{Terminal, agent_binary, lacks, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const HARD: &str = "evictionHard: {memory.available: 60Mi}\nevents: {enabled: true}";
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

fn node() -> Node {
    let mut node = Node::new(300);
    node.workload("web", "priority: 7, containers: [{name: c}]");
    node.workload("leaker", "containers: [{name: c}]");
    node.configure("observe", HARD);
    node.start(&[]);
    node
}

fn top(node: &Node) -> Command {
    let mut command = Command::new(agent_binary().unwrap());
    command.arg("top").env("BRINK_SOCKET", node.socket());
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    command
}

#[test]
fn a_page_for_scripts_has_everything_and_no_escape_codes() {
    let node = node();
    let _web = node.holding(0, 20);
    let output = top(&node).arg("--once").stdin(Stdio::null()).output();
    let output = output.unwrap();
    let (page, talk) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success() && talk.is_empty(), "{talk}");
    for part in [
        "the configuration says to observe",
        "hard 60Mi",
        "2 candidates",
        "test/web",
        "/s",
        "Last incidents\n  none is remembered",
    ] {
        assert!(page.contains(part), "{part:?} in\n{page}");
    }
    assert!(!page.contains('\u{1b}'), "{page:?}");
}

/// A pseudo-terminal with `brink top` in it.
struct Screen {
    child: Child,
    terminal: Terminal,
    /// Our own hold on its other side: what becomes of its settings.
    side: File,
}

impl Screen {
    fn open(node: &Node) -> io::Result<Self> {
        let terminal = Terminal::open()?;
        let side = terminal.side()?;
        let measures = Winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&side, measures).unwrap();
        let mut command = top(node);
        command.args(["--interval", "200ms"]);
        command.stdin(terminal.side()?);
        command.stdout(terminal.side()?);
        command.stderr(terminal.side()?);
        let child = command.spawn().unwrap();
        Ok(Self {
            child,
            terminal,
            side,
        })
    }

    fn press(&mut self, keys: &str) {
        self.terminal.press(keys).unwrap();
    }

    /// Waits until this can be read on it.
    #[track_caller]
    fn shows(&self, part: &str) {
        let found = wait_until(PATIENCE, || self.text().contains(part).then_some(()));
        assert!(found.is_some(), "{part:?} in\n{}", self.text());
    }

    /// What is to be read: the terminal's cells after everything that was written to it.
    fn text(&self) -> String {
        cells(&self.terminal.written())
    }

    /// Waits for its end; the terminal must be as it was.
    #[track_caller]
    fn ends(mut self) {
        let ended = wait_until(PATIENCE, || self.child.try_wait().unwrap());
        assert!(ended.expect("it ends").success(), "{}", self.text());
        let modes = tcgetattr(&self.side).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        let left = wait_until(PATIENCE, || {
            let text = self.terminal.written();
            (text.contains("\u{1b}[?1049l") && text.ends_with("\u{1b}[?25h")).then_some(())
        });
        assert!(
            left.is_some(),
            "the other screen is left, and the cursor is seen"
        );
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It has ended unless the test has failed.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// A terminal that knows how to go to a place, to clear, and to write.
fn cells(written: &str) -> String {
    let mut rows = vec![vec![' '; usize::from(COLUMNS)]; usize::from(ROWS)];
    let (mut row, mut column) = (0, 0);
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                if letters.next() != Some('[') {
                    continue;
                }
                let is_parameter = |letter: &char| !letter.is_ascii_alphabetic();
                let parameters: String = letters.clone().take_while(is_parameter).collect();
                let end = letters.nth(parameters.chars().count());
                let mut numbers = parameters
                    .split(';')
                    .map(|number| number.parse().unwrap_or(1));
                match end {
                    Some('H') => {
                        row = numbers.next().unwrap_or(1_usize).saturating_sub(1);
                        column = numbers.next().unwrap_or(1_usize).saturating_sub(1);
                    }
                    Some('J') => rows.iter_mut().for_each(|row| row.fill(' ')),
                    _ => {}
                }
            }
            letter if letter.is_control() => {}
            letter => {
                if let Some(cell) = rows.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    let rows = rows.iter().map(|row| row.iter().collect::<String>());
    rows.collect::<Vec<_>>().join("\n")
}

/// Begins one, or says why there is no terminal here.
macro_rules! screen {
    ($node:expr) => {
        match Screen::open($node) {
            Ok(screen) => screen,
            Err(error) => lacks!("needs pseudo-terminals: {error}"),
        }
    };
}

#[test]
fn it_outlives_the_agent_and_gives_the_terminal_back() {
    let mut node = node();
    let _web = node.holding(0, 20);
    let mut screen = screen!(&node);
    screen.shows("UTC live");
    screen.shows("test/web");
    screen.shows("none is remembered");
    screen.press("?");
    screen.shows("q, Ctrl-C");
    screen.press("?");
    screen.shows("Who would go now for memory.available: 1 of 2");
    screen.press("j");
    screen.shows("2 of 2");
    screen.press("s");
    screen.shows("Who would go now for pid.available");
    node.stop(Signal::KILL);
    screen.shows("LOST, figures of");
    node.start(&[]);
    screen.shows("UTC live");
    let again = wait_until(PATIENCE, || {
        (!screen.text().contains("not heard of")).then_some(())
    });
    assert!(again.is_some(), "{}", screen.text());
    screen.press("q");
    screen.ends();
}

#[test]
fn a_signal_ends_it_like_a_key() {
    let node = node();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let screen = screen!(&node);
        screen.shows("UTC live");
        kill_process(Pid::from_child(&screen.child), signal).unwrap();
        screen.ends();
    }
    let mut screen = screen!(&node);
    screen.shows("UTC live");
    // Ctrl-C is a key there.
    screen.press("\u{3}");
    screen.ends();
}
