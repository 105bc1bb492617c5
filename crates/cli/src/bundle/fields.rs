//! Which fields of the API's answers a support bundle tells: those that `fields.txt` names, and no others.
//!
//! A list of what to leave out would be complete on the day on which it is written. A field that a later version adds
//! is withheld until somebody has looked at it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::net::{Net, WITHHELD};

const LIST: &str = include_str!("fields.txt");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// It is told, and what is in it by the names of that.
    Told,
    /// What is in it has names of its own, which are no fields.
    Names,
    /// It is hexadecimal digits by which something is known, and no key.
    Number,
    /// Somebody has decided that it is not told.
    Withheld,
}

/// The list.
#[derive(Debug)]
pub struct Fields {
    parts: BTreeMap<&'static str, BTreeMap<&'static str, Telling>>,
}

impl Fields {
    /// Reads the list.
    pub fn new() -> Fields {
        let mut parts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut part = "";
        for word in LIST.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace) {
            if let Some(name) = word.strip_suffix(':') {
                part = name;
                continue;
            }
            let (name, telling) = match (word.split_at(1), word.strip_suffix("{}")) {
                (("-", name), _) => (name, Telling::Withheld),
                (("=", name), _) => (name, Telling::Number),
                (_, Some(name)) => (name, Telling::Names),
                _ => (word, Telling::Told),
            };
            parts.entry(part).or_default().insert(name, telling);
        }
        Fields { parts }
    }

    /// What of an answer is told; texts in it come through the net.
    pub fn told(&self, part: &str, value: Value, net: &Net) -> Value {
        let none = BTreeMap::new();
        only(self.parts.get(part).unwrap_or(&none), value, net, false)
    }
}

/// Whether it can be told as it is: a known secret can't, whatever field it is in.
fn is_number(value: &Value, net: &Net) -> bool {
    let fits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    value.as_str().is_some_and(|text| fits(text) && !net.knows(text))
}

fn only(list: &BTreeMap<&str, Telling>, value: Value, net: &Net, is_named: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let told = fields.into_iter().map(|(name, value)| {
                let telling =
                    if is_named { Telling::Told } else { *list.get(name.as_str()).unwrap_or(&Telling::Withheld) };
                match telling {
                    Telling::Withheld => (name, Value::String(WITHHELD.to_owned())),
                    Telling::Number if is_number(&value, net) => (name, value),
                    telling => (net.clean(&name), only(list, value, net, telling == Telling::Names)),
                }
            });
            Value::Object(told.collect::<Map<_, _>>())
        }
        Value::Array(values) => {
            Value::Array(values.into_iter().map(|value| only(list, value, net, is_named)).collect())
        }
        Value::String(text) => Value::String(net.clean(&text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use azekura_api::Endpoint;
    use azekura_api::endpoint::*;
    use serde_json::json;

    use super::*;

    const DESCRIPTION: &str = include_str!("../../../../docs/api/openapi.json");

    /// All fields of an answer, as deep as they are.
    fn fields_of(description: &Value, schema: &Value, seen: &mut BTreeSet<String>, found: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str()
            && seen.insert(name.to_owned())
        {
            let at = name.trim_start_matches('#');
            fields_of(description, description.pointer(at).unwrap(), seen, found);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            found.insert(name.clone());
            fields_of(description, field, seen, found);
        }
        for inside in ["items", "additionalProperties"] {
            fields_of_one(description, &schema[inside], seen, found);
        }
        for inside in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            for one in schema[inside].as_array().into_iter().flatten() {
                fields_of_one(description, one, seen, found);
            }
        }
    }

    fn fields_of_one(description: &Value, schema: &Value, seen: &mut BTreeSet<String>, found: &mut BTreeSet<String>) {
        if schema.is_object() {
            fields_of(description, schema, seen, found);
        }
    }

    fn compare<E: Endpoint>(part: &str, parts: &mut BTreeSet<&str>) {
        let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
        let answer = &description["paths"][E::ROUTE.path]["get"]["responses"]["200"];
        let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
        fields_of(&description, &answer["content"]["application/json"]["schema"], &mut seen, &mut found);
        let list = Fields::new();
        let listed: BTreeSet<String> = list.parts[part].keys().map(|name| (*name).to_owned()).collect();
        let undecided: Vec<_> = found.difference(&listed).collect();
        assert!(undecided.is_empty(), "fields.txt says nothing of these fields of {part}: {undecided:?}");
        let gone: Vec<_> = listed.difference(&found).collect();
        assert!(gone.is_empty(), "fields.txt has fields that {part} has not: {gone:?}");
        parts.remove(part);
    }

    #[test]
    fn somebody_has_decided_about_each_field_of_the_api() {
        let list = Fields::new();
        let mut parts: BTreeSet<&str> = list.parts.keys().copied().collect();
        let all = &mut parts;
        compare::<Whoami>("whoami", all);
        compare::<Status>("status", all);
        compare::<NodeList>("nodes", all);
        compare::<DeviceList>("devices", all);
        compare::<GroupList>("groups", all);
        compare::<ClassList>("classes", all);
        compare::<VolumeList>("volumes", all);
        compare::<SnapshotList>("snapshots", all);
        compare::<TargetList>("targets", all);
        compare::<ProjectList>("projects", all);
        compare::<GrantList>("grants", all);
        compare::<Space>("space", all);
        compare::<JobList>("jobs", all);
        compare::<SettingsShow>("settings", all);
        compare::<KekShow>("keks", all);
        compare::<AuthorityShow>("authority", all);
        compare::<AuditShow>("audit", all);
        compare::<Stats>("stats", all);
        assert!(parts.is_empty(), "no answer has these parts: {parts:?}");
    }

    #[test]
    fn what_is_not_on_the_list_is_withheld() {
        let list = Fields::new();
        let volume = json!([{ "name": "db", "size_bytes": 4096, "wrapped_key": "0badcafe", "new": { "name": "x" } }]);
        let told = list.told("volumes", volume, &Net::default());
        assert_eq!(told, json!([{ "name": "db", "size_bytes": 4096, "wrapped_key": WITHHELD, "new": WITHHELD }]));
        assert_eq!(list.told("no such part", json!({ "name": 1 }), &Net::default()), json!({ "name": WITHHELD }));
        let audit = json!({ "records": [{ "who": "ann", "details": { "secret": "abc" } }] });
        let told = list.told("audit", audit, &Net::default());
        assert_eq!(told, json!({ "records": [{ "who": "ann", "details": WITHHELD }] }));
    }

    #[test]
    fn numbers_that_look_like_keys_are_told() {
        let uuid = "0badcafe".repeat(4);
        let told = |uuid: &str, net: &Net| Fields::new().told("volumes", json!({ "uuid": uuid, "name": uuid }), net);
        assert_eq!(told(&uuid, &Net::default()), json!({ "uuid": uuid, "name": WITHHELD }));
        assert_eq!(told("token=abc", &Net::default())["uuid"], "token=[withheld]");
        let mut net = Net::default();
        net.know(&uuid);
        assert_eq!(told(&uuid, &net)["uuid"], WITHHELD);
    }

    #[test]
    fn names_of_volumes_are_no_fields() {
        let stats =
            json!({ "nodes": [{ "snapshot": { "volumes": { "secret-plans": { "reads": { "secret": 7 } } } } }] });
        let told = Fields::new().told("stats", stats, &Net::default());
        let volume = json!({ "secret-plans": { "reads": { "secret": WITHHELD } } });
        assert_eq!(told["nodes"][0]["snapshot"]["volumes"], volume);
    }
}
