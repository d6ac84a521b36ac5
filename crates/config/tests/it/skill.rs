//! Switches of skills, as edits of a text.

use config::{Layer, Skill, View, apply, switch_skill};

#[track_caller]
fn check(before: &str, skill: &Skill, on: bool, want: &str) {
    let layer = Layer { name: "config.toml".into(), text: before.into() };
    let view = View::new(std::slice::from_ref(&layer), None, &[]).unwrap();
    let edit = switch_skill(&view.layers[0].config, skill, on).unwrap();
    assert_eq!(apply(&layer, &[edit]).unwrap(), want, "{skill:?} {on}");
}

#[test]
fn switches() {
    let (name, path) = (Skill::Name("s".into()), Skill::Path("/s/SKILL.md".into()));
    let off = "[skills]\nconfig = [{ name = \"s\", enabled = false }]\n";
    check("", &name, false, off);
    check(off, &name, false, off);
    check(off, &name, true, "");
    check(off, &path, true, off);
    check("x = 1\n", &name, true, "x = 1\n");
    // As the reference writes it.
    let listed = "[[skills.config]]\nname = \"s\" # s\nenabled = false\n";
    let both = format!("{listed}\n[[skills.config]]\npath = \"/s/SKILL.md\"\nenabled = false\n");
    check(listed, &path, false, &both);
    check(&both, &path, true, listed);
    check(listed, &name, true, "");
    let more = "[skills]\nmore = 1\nconfig = [{ name = \"s\", enabled = false }]\n";
    check(more, &name, true, "[skills]\nmore = 1\n");
}
