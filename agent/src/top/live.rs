//! The terminal: taken, drawn on, and given back as it was, however this ends.

use std::io;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::signal::unix::{SignalKind, signal};

use super::draw::draw;
use super::source::{Wish, keep_hearing, keep_looking};
use super::state::{Act, Key, News, State};

/// News that wait to be taken; whoever brings more waits too.
const WAITING: usize = 64;
/// For so long a key is waited for before news are looked for.
const GLANCE: Duration = Duration::from_millis(100);

/// Where the agent is asked, and how often.
#[derive(Clone, Debug)]
pub struct Where {
    /// Its control socket.
    pub socket: PathBuf,
    /// The socket of its events.
    pub events: PathBuf,
    /// From one look to the next.
    pub interval: Duration,
}

/// Shows it until somebody has seen enough, or a signal ends it.
///
/// # Errors
/// When the terminal cannot be taken, read or written.
pub fn run(mut state: State, place: &Where) -> io::Result<()> {
    let (teller, news) = sync_channel(WAITING);
    let (wish, bell) = Wish::new(state.signal());
    let wish = Arc::new(wish);
    end_on_signals(&teller)?;
    start_sources(place, &teller, (&wish, bell))?;
    let _taken = Taken::take()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut is_stale = true;
    loop {
        if is_stale {
            terminal.draw(|frame| draw(&state, frame.area(), frame.buffer_mut()))?;
        }
        let act = next_act(&mut state, &mut is_stale)?;
        match act {
            Act::Quit => return Ok(()),
            Act::Ask(signal) => wish.change(signal),
            Act::Draw => {}
        }
        while let Ok(news) = news.try_recv() {
            if matches!(news, News::End) {
                return Ok(());
            }
            state.hear(news);
            is_stale = true;
        }
    }
}

/// Waits for a key; whether the picture is stale then.
fn next_act(state: &mut State, is_stale: &mut bool) -> io::Result<Act> {
    *is_stale = event::poll(GLANCE)?;
    if !*is_stale {
        return Ok(Act::Draw);
    }
    let Event::Key(pressed) = event::read()? else {
        return Ok(Act::Draw);
    };
    Ok(key_of(pressed).map_or(Act::Draw, |key| state.press(key)))
}

/// What a key means; none if nothing.
fn key_of(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return (pressed.code == KeyCode::Char('c')).then_some(Key::Quit);
    }
    Some(match pressed.code {
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Esc => Key::Back,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Key::Help,
        KeyCode::Char(' ') => Key::Freeze,
        KeyCode::Char('s') => Key::Signal,
        KeyCode::Tab | KeyCode::BackTab => Key::Pane,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Key::First,
        KeyCode::End | KeyCode::Char('G') => Key::Last,
        _ => return None,
    })
}

fn start_sources(
    place: &Where,
    teller: &SyncSender<News>,
    (wish, bell): (&Arc<Wish>, Receiver<()>),
) -> io::Result<()> {
    let (looks, interval) = (teller.clone(), place.interval);
    let (wish, socket) = (Arc::clone(wish), place.socket.clone());
    thread::Builder::new()
        .name("top-looks".to_owned())
        .spawn(move || keep_looking((&socket, interval), &wish, &bell, &looks))?;
    let (incidents, events) = (teller.clone(), place.events.clone());
    thread::Builder::new()
        .name("top-hears".to_owned())
        .spawn(move || keep_hearing(&events, &incidents))?;
    Ok(())
}

/// Whoever ends us by a signal finds the terminal as it was.
fn end_on_signals(teller: &SyncSender<News>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        )
    };
    let teller = teller.clone();
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        // Nobody listens any more: it has ended already.
        let _ended = teller.send(News::End);
    };
    thread::Builder::new()
        .name("top-signals".to_owned())
        .spawn(wait)?;
    Ok(())
}

type Hook = dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync;

/// The terminal while it is ours.
struct Taken {
    before: Arc<Hook>,
}

impl Taken {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let before: Arc<Hook> = Arc::from(panic::take_hook());
        let hook = Arc::clone(&before);
        // A panic ends the process at once: this is the last moment to give the terminal back, and its words are read then.
        panic::set_hook(Box::new(move |info| {
            give_back();
            hook(info);
        }));
        let taken = Self { before };
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
        if !thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Each of its steps is taken, whatever becomes of the others: there may be no terminal any more.
fn give_back() {
    let _left = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _cooked = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: KeyCode, modifiers: KeyModifiers, expected: Option<Key>) {
        let pressed = KeyEvent::new(code, modifiers);
        assert_eq!(key_of(pressed), expected, "{code:?}");
        let released = KeyEvent::new_with_kind(code, modifiers, KeyEventKind::Release);
        assert_eq!(key_of(released), None);
    }

    #[test]
    fn keys_mean_what_the_help_says() {
        let none = KeyModifiers::NONE;
        for (code, key) in [
            (KeyCode::Char('q'), Key::Quit),
            (KeyCode::Esc, Key::Back),
            (KeyCode::Char('?'), Key::Help),
            (KeyCode::Char('h'), Key::Help),
            (KeyCode::Char('k'), Key::Up),
            (KeyCode::Down, Key::Down),
            (KeyCode::PageUp, Key::PageUp),
            (KeyCode::PageDown, Key::PageDown),
            (KeyCode::Home, Key::First),
            (KeyCode::End, Key::Last),
            (KeyCode::Tab, Key::Pane),
            (KeyCode::Char('s'), Key::Signal),
            (KeyCode::Char(' '), Key::Freeze),
        ] {
            check(code, none, Some(key));
        }
        check(KeyCode::Char('?'), KeyModifiers::SHIFT, Some(Key::Help));
        check(KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Key::Quit));
        check(KeyCode::Char('q'), KeyModifiers::CONTROL, None);
        check(KeyCode::Char('x'), none, None);
    }
}
