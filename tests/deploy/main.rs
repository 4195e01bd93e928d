//! The manifests of deploy/kubernetes: rendered, held to Kubernetes' own schema, to the reasons on their page and to the agent.
#![cfg(test)]

mod admission;
mod agent;
mod manifests;
mod reasons;
mod rendering;
mod request;
mod schema;
