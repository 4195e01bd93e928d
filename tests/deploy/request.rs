//! A request to the API server, and what the admission policies make of it.

use std::collections::HashMap;

use cel::{Context, Program};
use serde_json::{Value, json};

use crate::manifests::{all, list, rendered};

/// What the API server makes of an expression, as the request has these variables.
fn evaluate(expression: &Value, context: &Context<'_, '_>) -> cel::Value {
    let text = expression.as_str().unwrap();
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    // A policy that cannot be evaluated denies: failurePolicy is Fail. Here it is a fault of the policy.
    program
        .execute(context)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn holds(expression: &Value, context: &Context<'_, '_>) -> bool {
    match evaluate(expression, context) {
        cel::Value::Bool(holds) => holds,
        other => panic!("{expression}: {other:?} is no truth value"),
    }
}

/// A request, as the server shows it to a policy.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) resource: &'static str,
    pub(crate) sub_resource: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) user: Value,
    pub(crate) before: Value,
    pub(crate) after: Value,
}

impl Request {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// With another value at a place of the object that is to be.
    pub(crate) fn after(self, pointer: &str, value: Value) -> Self {
        self.with(|request| put(&mut request.after, pointer, value))
    }

    /// With another value at a place of the object before and after.
    pub(crate) fn always(self, pointer: &str, value: &Value) -> Self {
        self.with(|request| {
            put(&mut request.before, pointer, value.clone());
            put(&mut request.after, pointer, value.clone());
        })
    }

    /// Whether a policy's rules send the request to it.
    pub(crate) fn is_met_by(&self, policy: &Value) -> bool {
        let rules = list(&policy["spec"]["matchConstraints"]["resourceRules"]);
        let name = match self.sub_resource {
            "" => self.resource.to_owned(),
            below => format!("{}/{below}", self.resource),
        };
        rules.iter().any(|rule| {
            let has = |key: &str, wanted: &str| {
                let entries = list(&rule[key]).iter().filter_map(Value::as_str);
                entries.into_iter().any(|entry| {
                    let all_below = entry.strip_suffix("/*");
                    let is_below = all_below.is_some_and(|start| {
                        wanted.split_once('/').is_some_and(|(own, _)| own == start)
                    });
                    entry == wanted || is_below
                })
            };
            has("apiGroups", "")
                && has("apiVersions", "v1")
                && has("operations", self.operation)
                && has("resources", &name)
        })
    }
}

pub(crate) fn put(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    parent
        .as_object_mut()
        .unwrap()
        .insert(key.to_owned(), value);
}

/// What the first policy that denies says; nothing if all let the request pass.
pub(crate) fn denial(request: &Request) -> Option<String> {
    let objects = rendered("enforce");
    let policies = all(&objects, "ValidatingAdmissionPolicy");
    let mut met = policies.iter().filter(|policy| request.is_met_by(policy));
    met.find_map(|policy| denial_of(policy, request))
}

fn denial_of(policy: &Value, request: &Request) -> Option<String> {
    let mut context = Context::default();
    let either = |pointer: &str| {
        let found = request
            .after
            .pointer(pointer)
            .or(request.before.pointer(pointer));
        found.cloned().unwrap_or_default()
    };
    let facts = json!({
        "operation": request.operation,
        "name": either("/metadata/name"),
        "namespace": either("/metadata/namespace"),
        "subResource": request.sub_resource,
        "resource": { "group": "", "version": "v1", "resource": request.resource },
        "userInfo": request.user,
    });
    for (name, value) in [
        ("request", &facts),
        ("object", &request.after),
        ("oldObject", &request.before),
    ] {
        context.add_variable(name, value).unwrap();
    }
    let spec = &policy["spec"];
    let conditions = list(&spec["matchConditions"]);
    if !conditions
        .iter()
        .all(|condition| holds(&condition["expression"], &context))
    {
        return None;
    }
    let mut variables = HashMap::new();
    for variable in list(&spec["variables"]) {
        let value = evaluate(&variable["expression"], &context);
        variables.insert(variable["name"].as_str().unwrap().to_owned(), value);
        let so_far = cel::objects::Map::from(variables.clone());
        context.add_variable_from_value("variables", cel::Value::Map(so_far));
    }
    let failed = list(&spec["validations"])
        .iter()
        .find(|validation| !holds(&validation["expression"], &context));
    failed.map(|validation| validation["message"].as_str().unwrap().to_owned())
}
