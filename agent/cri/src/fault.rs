//! Why a runtime cannot be asked, or has not done what it was asked.

use std::path::PathBuf;
use std::time::Duration;

use tonic::Code;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// No runtime is there: no such socket, or nobody behind it.
    #[error("no container runtime at {}: {why}", .socket.display())]
    Absent {
        /// The socket that was looked for.
        socket: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// We may not use the socket.
    #[error(
        "the container runtime at {} may not be asked: {why}; its socket is root's alone unless it is configured otherwise",
        .socket.display()
    )]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// The socket cannot be connected to for another reason.
    #[error("connecting to the container runtime at {}: {source}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It was asked and has not answered in time.
    #[error("the container runtime has not answered {call} within {} ms", .after.as_millis())]
    Hung {
        /// What it was asked.
        call: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// It answered that it will not, or cannot.
    #[error("the container runtime refuses {call}: {message} ({code:?})")]
    Refused {
        /// What it was asked.
        call: &'static str,
        /// Its reason, by gRPC's code.
        code: Code,
        /// Its reason, in its words.
        message: String,
    },
    /// It is there, and speaks another version of the interface, or none.
    #[error("the container runtime at {} does not speak CRI v1: {spoken}", .socket.display())]
    NoCriV1 {
        /// The socket.
        socket: PathBuf,
        /// What it speaks instead.
        spoken: Spoken,
    },
    /// The connection ended while it was asked: it was stopped, or is being restarted.
    #[error("the container runtime went away while it was asked {call}: {why}")]
    Gone {
        /// What it was asked.
        call: &'static str,
        /// What was seen of the connection.
        why: String,
    },
    /// Its answer lacks what it must have.
    #[error("the container runtime's answer to {call} cannot be used: {why}")]
    Unusable {
        /// What it was asked.
        call: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
}

/// What a runtime speaks that does not speak version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// The version before, of containerd before 1.6 and CRI-O before 1.20.
    V1Alpha2 {
        /// What it calls itself, with its version.
        runtime: String,
    },
    /// gRPC, and nothing of the interface. A containerd of Docker's packages has the plugin switched off.
    OnlyGrpc,
    /// Not even that.
    NotGrpc,
}

impl std::fmt::Display for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::V1Alpha2 { runtime } => write!(f, "{runtime} speaks v1alpha2 alone"),
            Self::OnlyGrpc => f.write_str(
                "it speaks gRPC, and nothing of CRI (with containerd: is \"cri\" among its disabled_plugins?)",
            ),
            Self::NotGrpc => f.write_str("what it answers is no gRPC"),
        }
    }
}

impl CriError {
    /// A word for it, for metrics and records.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "absent",
            Self::Denied { .. } => "denied",
            Self::Connect { .. } => "connect",
            Self::Hung { .. } => "hung",
            Self::Refused { .. } => "refused",
            Self::NoCriV1 { .. } => "noCriV1",
            Self::Gone { .. } => "gone",
            Self::Unusable { .. } => "unusable",
        }
    }

    /// Whether it concerns this one call alone, so that another may well succeed.
    pub const fn is_of_one_call(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unusable { .. })
    }
}
