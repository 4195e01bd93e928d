//! The page's routes: its files, the node, and the eviction order. Nothing can be changed by any of them.

use std::sync::Arc;

use brink_stream::serve::{Reply, Request, Routes};

use super::bundle::{Asset, HEADERS, SERVED};
use crate::control::protocol::{Answer, Refusal, RefusalReason, Status};

/// Whom the page asks: what `brink status` and `brink rank` show, answered at once.
pub trait Asked: Send + Sync {
    /// How the agent and the node are.
    fn status(&self) -> Status;
    /// Who would go now for a signal; `memory.available` without.
    fn ranking(&self, signal: Option<&str>) -> Answer;
}

/// Adds the page's routes.
pub fn add(routes: &mut Routes, asked: &Arc<dyn Asked>) {
    for asset in SERVED {
        routes.add(asset.path, Arc::new(move |request| file(&asset, request)));
    }
    let status = Arc::clone(asked);
    routes.add(
        "/v1/status",
        Arc::new(move |_| guarded(Reply::json(200, &status.status()))),
    );
    let ranking = Arc::clone(asked);
    routes.add(
        "/v1/rank",
        Arc::new(move |request| guarded(rank(&*ranking, request))),
    );
}

/// A file, or that the browser has it already.
fn file(asset: &Asset, request: &Request) -> Reply {
    let tag = format!("\"{}\"", asset.sha256);
    let known = request.header("if-none-match").unwrap_or_default();
    let is_known = known
        .split(',')
        .any(|one| one.trim().trim_start_matches("W/") == tag);
    let reply = if is_known {
        Reply::new(304, asset.content_type, "")
    } else {
        Reply::new(200, asset.content_type, asset.text)
    };
    let reply = reply.with("ETag", tag);
    let with = |reply: Reply, (name, value): (&'static str, &str)| reply.with(name, value);
    HEADERS.into_iter().fold(reply, with)
}

/// Data that no other site may embed; it is not kept by anybody.
fn guarded(reply: Reply) -> Reply {
    reply.with("Cross-Origin-Resource-Policy", "same-origin")
}

fn rank(asked: &dyn Asked, request: &Request) -> Reply {
    // A slip in the key would be answered for another signal.
    if let Err(refusal) = request.only(&["signal"], "the only key is signal", "give it once") {
        return refusal;
    }
    match asked.ranking(request.value("signal")) {
        Answer::Ranking(ranking) => Reply::json(200, &ranking),
        Answer::Refused(refusal) => refused(&refusal),
        _ => Reply::refusal(
            500,
            "that is no ranking",
            "this is a defect of the agent; report it",
        ),
    }
}

fn refused(refusal: &Refusal) -> Reply {
    let status = match refusal.reason {
        RefusalReason::NotFound => 404,
        RefusalReason::NotUnderstood | RefusalReason::Ambiguous => 400,
        RefusalReason::NotAllowed => 403,
        RefusalReason::NotPossible => 503,
    };
    Reply::refusal(status, &refusal.message, &refusal.next)
}
