//! Options that several commands share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use brink_core::node::signal::Signal;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::output::Format;
use crate::config::document::Origin;
use crate::config::finding::nearest;
use crate::config::{Form, Override, SETTINGS, Setting, Sources};

/// The configuration that is used where none is named, if it is there.
pub(super) const CONFIG: &str = "/etc/brink/config.yaml";

/// The folder of its drop-ins.
pub(super) const CONFIG_DIR: &str = "/etc/brink/conf.d";

const HEADING: &str = "Configuration (a flag wins over its variable, and both over files)";

/// `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct FormatArgs {
    /// Form of the output: text or json
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    pub output: Format,
}

/// The signal that is meant, or what is wrong with its name.
///
/// # Errors
/// When there is none of that name; all of them are listed then.
pub(super) fn signal(text: &str) -> Result<String, String> {
    let names = Signal::ALL.map(Signal::name);
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    let all = names.join(", ");
    Err(match nearest(text, names) {
        Some(meant) => format!("no such signal; did you mean {meant}? The signals are {all}"),
        None => format!("no such signal; the signals are {all}"),
    })
}

/// How a signal is named, where one stands behind a command that takes it by an option alone.
pub(super) fn tip(error: &clap::Error, command: &Command, words: &[OsString]) -> Option<String> {
    let called = command.find_subcommand(words.get(1)?)?;
    let mut args = called.get_arguments();
    let takes_one = args.any(|arg| arg.get_long() == Some("signal"));
    let is_it = takes_one && error.kind() == ErrorKind::UnknownArgument;
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg).filter(|_| is_it)? else {
        return None;
    };
    let meant = nearest(word, Signal::ALL.map(Signal::name))?;
    Some(format!("a signal is named by '--signal {meant}'"))
}

/// `--socket`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct SocketArgs {
    /// Socket of the agent
    #[arg(
        long,
        env = "BRINK_SOCKET",
        default_value = "/run/brink/brink.sock",
        value_name = "PATH",
        hide_env_values = true
    )]
    pub socket: PathBuf,
}

/// Where the configuration comes from: files, and every setting that a flag or variable can give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigArgs {
    /// `--config`, and whether it was on the command line.
    pub config: Option<(PathBuf, bool)>,
    /// `--config-dir`, and whether it was on the command line.
    pub config_dir: Option<(PathBuf, bool)>,
    /// Settings given by flags and variables.
    pub overrides: Vec<Override>,
}

impl ConfigArgs {
    /// The sources of the agent: what is named, or what lies in its usual place.
    pub fn sources(&self) -> Sources {
        let usual = |path: &str| Some(PathBuf::from(path)).filter(|path| path.exists());
        let named = |option: &Option<(PathBuf, bool)>| {
            let (path, _) = option.as_ref()?;
            Some(path.clone())
        };
        Sources {
            config: named(&self.config).or_else(|| usual(CONFIG)),
            config_dir: named(&self.config_dir).or_else(|| usual(CONFIG_DIR)),
            overrides: self.overrides.clone(),
            ..Sources::default()
        }
    }

    /// One file, with what else stands on the command line; neither the usual places nor the
    /// environment count.
    pub fn sources_of(&self, file: &Path) -> Sources {
        let is_flag = |given: &&Override| matches!(given.origin, Origin::Flag(_));
        let folder = self.config_dir.as_ref().filter(|(_, named)| *named);
        Sources {
            config: Some(file.to_path_buf()),
            config_dir: folder.map(|(path, _)| path.clone()),
            overrides: self.overrides.iter().filter(is_flag).cloned().collect(),
            ..Sources::default()
        }
    }
}

/// The flag and the variable of a setting.
fn arg_of(setting: &'static Setting) -> Arg {
    let action = match setting.form {
        Form::Text | Form::Braced | Form::Scalar => ArgAction::Set,
        Form::Pairs(_) | Form::Words | Form::Repeated => ArgAction::Append,
    };
    Arg::new(setting.flag)
        .long(setting.flag)
        .env(setting.variable)
        .hide_env_values(true)
        .hide_short_help(true)
        .action(action)
        .allow_hyphen_values(true)
        .value_name(setting.value_name)
        .help(setting.help)
        .help_heading(HEADING)
}

impl clap::Args for ConfigArgs {
    fn augment_args(command: Command) -> Command {
        let path = |id: &'static str, variable, name, help| {
            Arg::new(id)
                .long(id)
                .env(variable)
                .hide_env_values(true)
                .value_name(name)
                .value_parser(clap::value_parser!(PathBuf))
                .help(help)
                .help_heading(HEADING)
        };
        let command = command
            .arg(path(
                "config",
                "BRINK_CONFIG",
                "FILE",
                "The configuration; /etc/brink/config.yaml if that exists",
            ))
            .arg(path(
                "config-dir",
                "BRINK_CONFIG_DIR",
                "DIR",
                "Drop-ins laid over it, *.yaml and *.conf by name; /etc/brink/conf.d if that exists",
            ));
        SETTINGS.iter().map(arg_of).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ConfigArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let path = |id: &str| {
            let named = matches.value_source(id) == Some(ValueSource::CommandLine);
            Some((matches.get_one::<PathBuf>(id)?.clone(), named))
        };
        self.config = path("config");
        self.config_dir = path("config-dir");
        let given = SETTINGS.iter().filter_map(|setting| {
            let texts = matches.get_many::<String>(setting.flag)?;
            let texts: Vec<String> = texts.cloned().collect();
            let is_variable = matches.value_source(setting.flag) == Some(ValueSource::EnvVariable);
            let origin = if is_variable {
                Origin::Environment(setting.variable)
            } else {
                Origin::Flag(format!("--{}", setting.flag))
            };
            Some(Override {
                setting,
                texts,
                origin,
            })
        });
        self.overrides = given.collect();
        Ok(())
    }
}
