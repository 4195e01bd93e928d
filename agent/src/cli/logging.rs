//! The agent's log: text on a terminal, JSON otherwise, on stderr.

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogLevel, LogSettings};
use crate::terminal::is_coloured;

/// Starts the log; `RUST_LOG` wins over the configured level.
pub(super) fn init(settings: LogSettings) {
    let level = match settings.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .from_env_lossy();
    let stderr = io::stderr();
    let is_text = match settings.format {
        LogFormat::Auto => stderr.is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Whoever reads the log may be gone, or its disk full: told on the same channel, that would end the agent.
        .log_internal_errors(false)
        .with_target(false);
    // A second start in one process keeps the first log.
    let _started_already = if is_text {
        log.with_ansi(is_coloured(&stderr)).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
}
