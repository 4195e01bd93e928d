//! Where metrics and health are asked for: `/metrics`, `/livez` with its old name `/healthz`, and `/readyz`.

use std::sync::Arc;

use brink_stream::serve::{Reply, Request, Routes};

use super::exposition::Format;
use super::facts::Facts;
use super::health::{Check, Health, verdict};
use super::page::page;
use crate::control::views::Views;
use crate::runtime::prepare::Running;

/// Adds them for a running agent.
pub fn add(routes: &mut Routes, running: &Arc<Running>, views: &Arc<Views>) {
    let (of, seen) = (Arc::clone(running), Arc::clone(views));
    let metrics = move |request: &Request| {
        let format = Format::accepted(request.header("accept"));
        let page = page(&Facts::gather(&of, &seen), format);
        Reply::new(200, format.content_type(), page)
    };
    routes.add("/metrics", Arc::new(metrics));
    let endpoints: [(&'static str, Checks); 3] = [
        ("/livez", Health::live),
        ("/healthz", Health::live),
        ("/readyz", Health::ready),
    ];
    for (path, checks) in endpoints {
        let of = Arc::clone(running);
        let health = move |request: &Request| {
            let checks = checks(&Health::gather(&of));
            healthy(path.trim_start_matches('/'), &checks, &request.query)
        };
        routes.add(path, Arc::new(health));
    }
}

/// The checks of an endpoint.
type Checks = fn(&Health) -> Vec<Check>;

fn healthy(endpoint: &str, checks: &[Check], query: &[(String, String)]) -> Reply {
    let found = verdict(endpoint, checks, query);
    // The status of Kubernetes' own endpoints.
    let status = if found.passed { 200 } else { 500 };
    Reply::new(status, "text/plain; charset=utf-8", found.text)
}
