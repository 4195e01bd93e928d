//! The schemas of events and incidents, from the model's types and their comments.

use syn::{Attribute, Fields, Item, ItemEnum, ItemStruct, Meta, Type};

use super::Files;
use super::event_fields::{Sources, camel, data_of, described, kebab, renamed, snake, sources};
use super::ordered::Json;

const API_VERSION: &str = "brink.dev/v1alpha1";
const ADDRESS: &str = "https://brink.dev/schemas/v1alpha1/events/";
const INCIDENT: &str = "incident.schema.json";
const EVENT: &str = "event.schema.json";

/// `docs/schemas/events`.
pub(super) fn make() -> anyhow::Result<Files> {
    let sources = sources()?;
    let file = |name: &str, schema: &Json| (name.to_owned(), schema.pretty().into_bytes());
    Ok(Files::from([
        file(INCIDENT, &incident(&sources)),
        file(EVENT, &event(&sources)),
    ]))
}

fn items<'a>(sources: &'a Sources, file: &str) -> &'a [Item] {
    sources.get(file).map_or(&[], Vec::as_slice)
}

fn head(file: &str, title: &str) -> Json {
    Json::map([
        (
            "$schema",
            Json::text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("$id", Json::Text(format!("{ADDRESS}{file}"))),
        ("title", Json::text(title)),
    ])
}

/// One map behind the other.
fn joined(one: Json, other: Json) -> Json {
    match (one, other) {
        (Json::Map(mut one), Json::Map(other)) => {
            one.extend(other);
            Json::Map(one)
        }
        (one, _) => one,
    }
}

fn incident(sources: &Sources) -> Json {
    let title = "Data of events about incidents, and output of `brink incident ID -o json`";
    let all = [
        items(sources, "incident"),
        items(sources, "workloads"),
        items(sources, "field"),
        items(sources, "event"),
        items(sources, "data"),
    ];
    let others = ["Incident", "Event", "Subject", "Draft", "Field"];
    // Of what other events tell, only the configuration is part of an incident.
    let configuration = ["Configuration", "ThresholdParts"];
    let of_data: Vec<String> = items(sources, "data")
        .iter()
        .filter_map(struct_name)
        .collect();
    let is_others = |name: &str| of_data.iter().any(|own| own == name);
    let wanted =
        |name: &str| configuration.contains(&name) || !(others.contains(&name) || is_others(name));
    let root = structs(items(sources, "incident"), "Incident");
    let root = root.map_or(Json::map([]), object);
    joined(head(INCIDENT, title), root).with("$defs", definitions(&all, wanted))
}

fn event(sources: &Sources) -> Json {
    let title =
        "One event: a line of `brink events -o json`, of /v1/events and of every other way out";
    let all = [items(sources, "event"), items(sources, "data")];
    let root = structs(items(sources, "event"), "Event").map_or(Json::map([]), object);
    let (kinds, data) = (kinds(items(sources, "kind")), items(sources, "data"));
    let mut forms: Vec<(String, Vec<String>)> = Vec::new();
    for kind in &kinds {
        let form = data_of(kind, data);
        let word = kebab(kind);
        match forms.iter_mut().find(|(known, _)| *known == form) {
            Some((_, words)) => words.push(word),
            None => forms.push((form, vec![word])),
        }
    }
    let branch = |(form, words): &(String, Vec<String>)| {
        let target = match form.as_str() {
            "Incident" => INCIDENT.to_owned(),
            own => pointer(own),
        };
        let words = Json::texts(words.iter().map(String::as_str));
        let properties = [
            ("type", Json::map([("enum", words)])),
            ("data", Json::map([("$ref", Json::Text(target))])),
        ];
        Json::map([("properties", Json::map(properties))])
    };
    let branches = Json::List(forms.iter().map(branch).collect());
    let wanted = |name: &str| !["Event", "Draft"].contains(&name);
    joined(head(EVENT, title), root)
        .with("oneOf", branches)
        .with("$defs", definitions(&all, wanted))
}

fn structs<'a>(items: &'a [Item], name: &str) -> Option<&'a ItemStruct> {
    items.iter().find_map(|item| match item {
        Item::Struct(found) if found.ident == name => Some(found),
        _ => None,
    })
}

fn struct_name(item: &Item) -> Option<String> {
    match item {
        Item::Struct(found) => Some(found.ident.to_string()),
        _ => None,
    }
}

fn kinds(items: &[Item]) -> Vec<String> {
    let variants = items.iter().filter_map(|item| match item {
        Item::Enum(found) if found.ident == "Kind" => Some(&found.variants),
        _ => None,
    });
    let names = variants.flatten().map(|variant| variant.ident.to_string());
    names.collect()
}

fn definitions(files: &[&[Item]], wanted: impl Fn(&str) -> bool) -> Json {
    let definition = |item: &Item| match item {
        Item::Struct(found) if wanted(&found.ident.to_string()) => {
            Some((definition_name(&found.ident.to_string()), object(found)))
        }
        Item::Enum(found) if wanted(&found.ident.to_string()) => {
            Some((definition_name(&found.ident.to_string()), words(found)))
        }
        _ => None,
    };
    Json::Map(
        files
            .iter()
            .copied()
            .flatten()
            .filter_map(definition)
            .collect(),
    )
}

fn object(found: &ItemStruct) -> Json {
    let Fields::Named(fields) = &found.fields else {
        return Json::map([]);
    };
    let named: Vec<_> = fields
        .named
        .iter()
        .map(|field| {
            let name = field.ident.as_ref().map(ToString::to_string);
            let name = renamed(&field.attrs).unwrap_or_else(|| camel(&name.unwrap_or_default()));
            (name, field)
        })
        .collect();
    let required = named
        .iter()
        .filter(|(_, field)| !may_be_left_out(&field.attrs));
    let required: Vec<&str> = required.map(|(name, _)| name.as_str()).collect();
    let property = |(name, field): &(String, &syn::Field)| {
        let text = described(&field.attrs);
        let schema = constant(name, &text).unwrap_or_else(|| schema_of(&field.ty));
        let description = Json::map([("description", Json::Text(text))]);
        (name.clone(), joined(description, schema))
    };
    Json::map([
        ("description", Json::Text(described(&found.attrs))),
        ("type", Json::text("object")),
        ("additionalProperties", Json::Bool(false)),
        ("required", Json::texts(required)),
        (
            "properties",
            Json::Map(named.iter().map(property).collect()),
        ),
    ])
}

/// What always stands in a field, if its comment says so.
fn constant(name: &str, comment: &str) -> Option<Json> {
    let always = match name {
        "apiVersion" => API_VERSION,
        _ => comment.strip_prefix("Always `")?.strip_suffix("`.")?,
    };
    Some(Json::map([("const", Json::text(always))]))
}

/// Whether a writer may leave a field out: one that came later, or that is not told where there is nothing to tell.
fn may_be_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("serde") => {
            let text = list.tokens.to_string();
            text.contains("default") || text.contains("skip_serializing_if")
        }
        _ => false,
    })
}

fn words(found: &ItemEnum) -> Json {
    let words = found.variants.iter();
    let words = words.map(|variant| camel(&snake(&variant.ident.to_string())));
    let words: Vec<Json> = words.map(Json::Text).collect();
    Json::map([
        ("description", Json::Text(described(&found.attrs))),
        ("enum", Json::List(words)),
    ])
}

fn schema_of(of: &Type) -> Json {
    let of_type = |name: &str| Json::map([("type", Json::text(name))]);
    let Type::Path(path) = of else {
        return Json::map([]);
    };
    let Some(last) = path.path.segments.last() else {
        return Json::map([]);
    };
    let inner = inner_types(&last.arguments);
    let first = || {
        inner
            .first()
            .map_or(Json::map([]), |inner| schema_of(inner))
    };
    match last.ident.to_string().as_str() {
        "Option" => or_null(first()),
        "Field" => field(first()),
        "Vec" => of_type("array").with("items", first()),
        "BTreeMap" => {
            let values = inner.last().map_or(Json::map([]), |inner| schema_of(inner));
            of_type("object").with("additionalProperties", values)
        }
        "Box" | "Value" | "RawValue" | "Kind" => Json::map([]),
        "String" => of_type("string"),
        "bool" => of_type("boolean"),
        "f64" => of_type("number"),
        "u32" | "u64" | "i32" | "i64" => of_type("integer"),
        own => Json::map([("$ref", Json::Text(pointer(own)))]),
    }
}

fn inner_types(arguments: &syn::PathArguments) -> Vec<&Type> {
    let syn::PathArguments::AngleBracketed(found) = arguments else {
        return Vec::new();
    };
    let types = found.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(inner) => Some(inner),
        _ => None,
    });
    types.collect()
}

fn or_null(schema: Json) -> Json {
    let null = Json::map([("type", Json::text("null"))]);
    match &schema {
        Json::Map(pairs) => match pairs.as_slice() {
            [(key, Json::Text(name))] if key == "type" => {
                Json::map([("type", Json::texts([name.as_str(), "null"]))])
            }
            _ => Json::map([("anyOf", Json::List(vec![schema, null]))]),
        },
        _ => schema,
    }
}

/// A value, or why there is none.
fn field(value: Json) -> Json {
    let one = |name: &str, schema: Json| {
        Json::map([
            ("type", Json::text("object")),
            ("additionalProperties", Json::Bool(false)),
            ("required", Json::texts([name])),
            ("properties", Json::map([(name, schema)])),
        ])
    };
    let missing = Json::map([("$ref", Json::Text(pointer("Missing")))]);
    Json::map([(
        "oneOf",
        Json::List(vec![one("value", value), one("missing", missing)]),
    )])
}

fn pointer(name: &str) -> String {
    format!("#/$defs/{}", definition_name(name))
}

fn definition_name(name: &str) -> String {
    camel(&snake(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(of: &str, expected: &str) {
        let of: Type = syn::parse_str(of).unwrap();
        let found: serde_json::Value = serde_json::from_str(&schema_of(&of).pretty()).unwrap();
        let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn types_are_those_of_the_wire() {
        check("Option<String>", r#"{"type": ["string", "null"]}"#);
        check(
            "Vec<super::Time>",
            r##"{"type": "array", "items": {"$ref": "#/$defs/time"}}"##,
        );
        check(
            "BTreeMap<String, u64>",
            r#"{"type": "object", "additionalProperties": {"type": "integer"}}"#,
        );
        check(
            "Option<ZoneState>",
            r##"{"anyOf": [{"$ref": "#/$defs/zoneState"}, {"type": "null"}]}"##,
        );
        check("Value", "{}");
        check(
            "Field<bool>",
            r##"{"oneOf": [
                {"type": "object", "additionalProperties": false, "required": ["value"], "properties": {"value": {"type": "boolean"}}},
                {"type": "object", "additionalProperties": false, "required": ["missing"], "properties": {"missing": {"$ref": "#/$defs/missing"}}}]}"##,
        );
    }

    #[test]
    fn every_kind_has_the_form_of_its_data_and_nothing_refers_to_nothing() {
        let files = make().unwrap();
        for (name, bytes) in &files {
            let schema: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            let text = String::from_utf8_lossy(bytes);
            let targets = text.split("\"$ref\": \"#").skip(1);
            for target in targets.filter_map(|rest| rest.split('"').next()) {
                assert!(schema.pointer(target).is_some(), "{name}: {target}");
            }
        }
        let event: serde_json::Value = serde_json::from_slice(&files[EVENT]).unwrap();
        let branches = event["oneOf"].as_array().unwrap();
        let words = branches
            .iter()
            .flat_map(|branch| branch["properties"]["type"]["enum"].as_array().unwrap());
        let words: Vec<_> = words.filter_map(|word| word.as_str()).collect();
        assert_eq!(words.len(), kinds(items(&sources().unwrap(), "kind")).len());
        assert!(
            words.contains(&"oom-kill") && words.contains(&"loss"),
            "{words:?}"
        );
        let required = event["required"].as_array().unwrap();
        assert!(required.contains(&"seq".into()) && !required.contains(&"subject".into()));
        assert_eq!(event["properties"]["kind"]["const"], "Event");
    }
}
