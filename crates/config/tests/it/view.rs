//! What layers and overrides say together, and why a value of one of them does not hold.

use crate::{layers, options};
use config::{Config, KeyPath, View};
use serde_json::{Value, json};

fn view(texts: &[&str], profile: Option<&str>, arguments: &[&str]) -> View {
    View::new(&layers(texts), profile, &options(arguments)).unwrap()
}

#[test]
fn layers_are_merged_and_named() {
    let found = view(
        &["model = 'a'\nt = { x = 1, l = [1, { y = 2 }] }\nd = 1979-05-27\n", "t.x = 2\nf = inf"],
        None,
        &["model=c", "t.z=[]"],
    );
    assert_eq!(
        Value::Object(found.effective.clone()),
        json!({"model": "c", "d": "1979-05-27", "f": "inf", "t": {"x": 2, "l": [1, {"y": 2}], "z": []}})
    );
    let origins: Vec<_> = found.origins.iter().map(|(key, layer)| (key.as_str(), *layer)).collect();
    let want = [("d", 0), ("f", 1), ("model", 2), ("t.l.0", 0), ("t.l.1.y", 0), ("t.x", 1)];
    assert_eq!(origins, want);
    let said: Vec<_> = found.layers.iter().map(|it| Value::Object(it.config.clone())).collect();
    assert_eq!(said[1], json!({"t": {"x": 2}, "f": "inf"}));
    assert_eq!(said[2], json!({"model": "c", "t": {"z": []}}));
}

/// The same as those of the reference for the same settings.
#[test]
fn versions() {
    for (text, want) in [
        ("", "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (
            "# said\nsandbox_mode = 'read-only'\nmodel = 'flag'",
            "sha256:59738efc1658593a6abed811d58063c0967773a88df2bb8084f9b0563fc0b510",
        ),
    ] {
        assert_eq!(view(&[text], None, &[]).layers[0].version, want);
    }
}

#[test]
fn overridden() {
    let user = "model = 'a'\nprofile = 'p'\n[t]\nx = 1\n[profiles.p]\nmodel_verbosity = 'low'\n";
    let found = view(&[user, "t.y = 1\nn = 3"], None, &["model=c", "web_search=live"]);
    let check = |path: &str, want: Option<(usize, Value)>| {
        let path = KeyPath::parse(path).unwrap();
        let got = found.overriding(0, &path).map(|it| (it.layer, it.effective));
        assert_eq!(got, want, "{path}");
    };
    check("model", Some((2, json!("c"))));
    check("web_search", Some((2, json!("live"))));
    check("n", Some((1, json!(3))));
    // More in a table is no contradiction.
    check("t", None);
    check("t.x", None);
    check("unset", None);
    check("model_verbosity", Some((0, json!("low"))));
    check("profile", None);
    // A higher layer is asked, too.
    assert_eq!(found.overriding(1, &KeyPath::parse("t.y").unwrap()), None);
}

#[test]
fn defaults() {
    let shown = view(&["approval_policy = 'on-failure'\nx = 1\n[sandbox_workspace_write]\nnetwork_access = true"], None, &[]).with_defaults();
    assert_eq!(shown["approval_policy"], "on-request");
    assert_eq!(shown["x"], 1);
    assert_eq!(shown["model"], Value::Null);
    assert_eq!(shown["project_doc_max_bytes"], 32768);
    assert_eq!(shown["sandbox_workspace_write"]["network_access"], true);
    assert_eq!(shown["sandbox_workspace_write"]["exclude_slash_tmp"], false);
    let first = ["model", "review_model"];
    assert_eq!(shown.keys().take(2).collect::<Vec<_>>(), first);
}

/// What is shown as a default is one, and under a name that there is.
#[test]
fn defaults_are_those_of_settings() {
    let shown = view(&[], None, &[]).with_defaults();
    let set = shown.iter().filter(|(_, value)| !value.is_null());
    let text: String = set
        .map(|(key, value)| match value {
            Value::Object(_) => format!("{key} = {{}}\n"),
            value => format!("{key} = {value}\n"),
        })
        .collect();
    let loaded = Config::load(&layers(&[&text]), None, &[]).unwrap();
    assert_eq!(loaded.config, Config::default());
}

#[test]
fn what_cannot_be_read_is_said() {
    let error = View::new(&layers(&["", "a = \n"]), None, &[]).unwrap_err();
    assert!(error.to_string().starts_with("b.toml:1:"), "{error}");
    // What is wrong with a setting is shown all the same.
    assert_eq!(view(&["model = 3"], None, &[]).effective["model"], 3);
}
