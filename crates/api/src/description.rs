//! The OpenAPI 3.1 description, made from the endpoints and the types. It is made in a test and kept as
//! docs/api/openapi.json, so that a program that serves it does not have to be able to make it
//! (docs/decisions/0025-api-crate.md).
//!
//! `GOLDEN=write cargo test -p azekura-api` writes it anew.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{Answer, Endpoint, ErrorBody, Needs, OPENAPI};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/openapi.json");

/// The description under construction.
pub(crate) struct Description {
    /// What is read may leave out what has a default; what is written has all.
    requests: SchemaGenerator,
    answers: SchemaGenerator,
    paths: BTreeMap<&'static str, Map<String, Value>>,
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

/// The resource that a path is about.
fn tag(path: &str) -> &str {
    let segments: Vec<&str> = path.split('/').collect();
    match segments[..] {
        ["", "v1", "volumes", _, "snapshots", ..] | ["", "v1", "snapshots"] => "snapshots",
        ["", "v1", resource @ ("volumes" | "classes" | "nodes" | "devices" | "groups" | "grants"), ..] => resource,
        ["", "v1", "node", ..] => "between nodes",
        _ => "cluster",
    }
}

impl Description {
    fn new() -> Description {
        let (requests, answers) = (generator(Contract::Deserialize), generator(Contract::Serialize));
        Description { requests, answers, paths: BTreeMap::new() }
    }

    /// Adds an endpoint with what its comment says.
    pub(crate) fn add<E: Endpoint>(&mut self, name: &str, comment: &[&str])
    where
        E::Query: JsonSchema,
        E::Body: JsonSchema,
        E::Answer: JsonSchema,
    {
        let mut answer = json!({ "description": "Done." });
        if let Some(media_type) = <E::Answer as Answer>::MEDIA_TYPE {
            let schema = self.answers.subschema_for::<E::Answer>();
            answer["content"] = json!({ media_type: { "schema": schema } });
        }
        let comment = comment.join("\n").trim().to_owned();
        let (summary, _) = comment.split_once(['.', ':', ';']).unwrap_or((&comment, ""));
        let mut operation = json!({
            "operationId": name,
            "tags": [tag(E::ROUTE.path)],
            "summary": summary,
            "description": comment,
            "x-azekura-needs": E::ROUTE.needs.word(),
            "responses": { E::STATUS.to_string(): answer, "default": { "$ref": "#/components/responses/Error" } },
        });
        if E::ROUTE.needs == Needs::Nothing {
            operation["security"] = json!([{}, { "token": [] }]);
        }
        let mut parameters = self.parameters::<E>();
        if E::ROUTE.takes_idempotency_key() {
            parameters.push(json!({ "$ref": "#/components/parameters/IdempotencyKey" }));
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if E::no_body().is_none() {
            let schema = self.requests.subschema_for::<E::Body>();
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        let method = E::ROUTE.method.word().to_lowercase();
        assert!(self.paths.entry(E::ROUTE.path).or_default().insert(method, operation).is_none(), "{name} twice");
    }

    fn parameters<E: Endpoint>(&mut self) -> Vec<Value>
    where
        E::Query: JsonSchema,
    {
        let names = E::ROUTE.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let name = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let mut parameters: Vec<Value> = names.map(name).collect();
        let query = E::Query::json_schema(&mut self.requests).to_value();
        let required = query["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in query["properties"].as_object().into_iter().flatten() {
            let mut schema = schema.clone();
            let comment = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            parameters.push(json!({
                "name": name, "in": "query", "required": required.contains(&json!(name)), "description": comment, "schema": schema,
            }));
        }
        parameters
    }

    fn finish(mut self) -> Value {
        let error = self.answers.subschema_for::<ErrorBody>();
        let mut schemas = self.requests.take_definitions(true);
        for (name, schema) in self.answers.take_definitions(true) {
            let before = schemas.insert(name.clone(), schema.clone());
            assert!(before.is_none_or(|before| before == schema), "{name} is not the same in requests and in answers");
        }
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Azekura",
                "version": "1",
                "summary": "Replicated block storage: the REST API that every node serves.",
                "description": "Any node answers for the whole cluster, unless a path says otherwise. docs/api.md tells how to \
                                reach it and how it changes from version to version.",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "http://127.0.0.1:7180", "description": "The node on this machine, unless its --api says otherwise." }],
            "paths": self.paths,
            "security": [{ "token": [] }],
            "components": {
                "securitySchemes": { "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of 'azekura token create'. Not asked for where the setting api_access is 'open', nor \
                                    through a node's own socket. What an operation needs of it stands there as x-azekura-needs.",
                } },
                "parameters": { "IdempotencyKey": {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": false,
                    "description": "By which the request is known when it is sent again, for a day: it is carried out once, and what \
                                    was answered is answered again, with the header azekura-replayed. Best a UUID.",
                    "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
                } },
                "responses": { "Error": {
                    "description": "It failed. The status follows from the code.",
                    "content": { "application/json": { "schema": error } },
                } },
                "schemas": schemas,
            },
        });
        readable(&mut document);
        document
    }
}

/// Takes the links of Rust's documentation out of descriptions.
fn readable(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("[`") => *text = text.replace("[`", "`").replace("`]", "`"),
        Value::Array(values) => values.iter_mut().for_each(readable),
        Value::Object(fields) => fields.values_mut().for_each(readable),
        _ => {}
    }
}

fn described() -> Value {
    let mut description = Description::new();
    crate::endpoint::describe(&mut description);
    description.finish()
}

#[test]
fn the_published_description_is_made_from_the_types() {
    let text = format!("{}\n", serde_json::to_string_pretty(&described()).unwrap());
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(PATH, &text).unwrap();
        return;
    }
    if let Some((line, (is, was))) = text.lines().zip(OPENAPI.lines()).enumerate().find(|(_, (is, was))| is != was) {
        panic!(
            "docs/api/openapi.json, line {}: it says\n{was}\nand the types say\n{is}\nIf the API was meant to change: \
             GOLDEN=write cargo test -p azekura-api, and tell of it in docs/api.md",
            line + 1
        );
    }
    assert_eq!(text.len(), OPENAPI.len(), "docs/api/openapi.json ends earlier or later than it should");
}

/// Every reference in the description has what it refers to.
#[test]
fn references_lead_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| walk(value, document)),
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    let pointer = to.strip_prefix('#').expect("a reference inside the document");
                    assert!(document.pointer(pointer).is_some(), "nothing is at {to}");
                }
                fields.values().for_each(|value| walk(value, document));
            }
            _ => {}
        }
    }
    let document = described();
    walk(&document, &document);
}

/// People read the description: whatever has a name in it is explained.
#[test]
fn everything_is_explained() {
    let document = described();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        // Made of others by the library, such as `Result_of_…`.
        if name.contains("_of_") {
            continue;
        }
        assert!(schema["description"].is_string(), "{name}");
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            assert!(schema["description"].is_string(), "{name}.{field}");
        }
    }
}
