//! Plan mode: a plan is proposed, nothing can be changed, and the plan is carried out later.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{Lab, ModelServer, script};

use crate::BINARY;
use crate::run::{Ended, Run, exec, lab_for};

const PLAN: &str = "# Parser\n\n1. Write it.\n2. Test it.\n";

/// An answer with some text around a plan.
fn proposal() -> Value {
    let text = format!("I looked around.\n<proposed_plan>\n{PLAN}</proposed_plan>\nThat is all.");
    script::response([script::message(&text)])
}

fn answer(text: &str) -> Value {
    script::response([script::message(text)])
}

#[track_caller]
fn ran(lab: &Lab, args: &[&str]) -> Ended {
    let mut command = exec(lab, &[]);
    command.args(args);
    let ended = Run::start(command).end();
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:#?}");
    ended
}

/// Returns the texts of the messages with this role in a request.
fn said(request: &Value, role: &str) -> Vec<String> {
    let items = request["input"].as_array().unwrap();
    let messages = items.iter().filter(|item| item["role"] == role);
    messages
        .flat_map(|item| item["content"].as_array().unwrap())
        .map(|part| part["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_plan_is_proposed_and_carried_out() {
    let server = ModelServer::start(json!([proposal(), answer("Done."), answer("Done.")])).unwrap();
    let lab = lab_for(&server);
    let mut command = lab.command(BINARY);
    command.args([
        "exec",
        "--plan",
        "-s",
        "danger-full-access",
        "-o",
        "said.txt",
        "plan the parser",
    ]);
    let planned = Run::start(command).end();
    assert_eq!(planned.code, Some(0), "{planned:#?}");
    // The plan goes to stdout, what is around it to the file, and tags nowhere.
    assert_eq!(planned.stdout, format!("{PLAN}\n"));
    assert_eq!(lab.workspace.read("said.txt").unwrap(), "I looked around.\nThat is all.");
    assert!(!planned.stderr.contains("proposed_plan"), "{planned:#?}");

    let thread =
        ran(&lab, &["resume", "--last", "--implement", "be quick"]).events()[0]["thread_id"]
            .clone();
    let fresh = ran(&lab, &["resume", thread.as_str().unwrap(), "--implement", "--fresh"]);
    assert_ne!(fresh.events()[0]["thread_id"], thread);

    let bodies: Vec<Value> = server.requests().into_iter().map(|request| request.body).collect();
    let [plan, implement, fresh] = bodies.as_slice() else { panic!("{} requests", bodies.len()) };
    let of_mode = |body: &Value| {
        let told = said(body, "developer").into_iter();
        told.filter(|text| text.starts_with("<collaboration_mode>")).collect::<Vec<_>>()
    };
    assert_eq!(of_mode(plan).len(), 1);
    assert!(of_mode(plan)[0].contains("<proposed_plan>"), "{plan:#}");
    // The model is told that it may work again, after all that it was told before.
    assert_eq!(of_mode(implement)[..1], of_mode(plan)[..]);
    assert!(of_mode(implement)[1].contains("Plan mode is over"), "{implement:#}");
    let asked = said(implement, "user").pop().unwrap();
    assert_eq!(asked, format!("be quick\n\nCarry out this plan:\n\n{PLAN}"));
    assert_eq!(of_mode(fresh), [""; 0]);
    assert_eq!(said(fresh, "user").pop().unwrap(), format!("Carry out this plan:\n\n{PLAN}"));
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let server = ModelServer::start(json!([answer("no plan")])).unwrap();
    let lab = lab_for(&server);
    lab.workspace.write("schema.json", "{}").unwrap();
    let thread = ran(&lab, &["hello"]).events()[0]["thread_id"].as_str().unwrap().to_owned();
    for (args, says) in [
        (&["--plan", "--output-schema", "schema.json", "x"][..], "--plan and --output-schema"),
        (&["resume", &thread, "--implement", "--plan"], "--plan and --implement"),
        (&["resume", &thread, "--fresh"], "--implement"),
        (&["resume", &thread, "--implement"], "has proposed no plan"),
    ] {
        let mut command = exec(&lab, &[]);
        command.args(args);
        let ended = Run::start(command).end();
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:#?}");
        assert!(ended.stderr.contains(says), "{args:?}: {ended:#?}");
    }
    assert_eq!(server.requests().len(), 1);
}

/// Returns the names and contents of all files below a directory.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else {
                found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

/// Ways to write that a model may try in the workspace, one command each.
const WRITES: &str = r#"
echo new > new
echo more >> file
: > file
printf x | tee file
cp file copy
mv file moved
rm file
rm -rf sub
mkdir made
rmdir empty
ln file hard
ln -s file soft
ln -sf new link
touch new
touch file
truncate -s 0 file
chmod 777 file
chown 1:1 file
dd if=/dev/zero of=file count=1
sed -i s/a/b/ file
perl -pi -e s/a/b/ file
perl -e 'open F, ">file"'
python3 -c 'open("file", "w").write("x")'
python3 -c 'import os; os.rename("file", "other")'
python3 -c 'import mmap; f = open("file", "r+b"); mmap.mmap(f.fileno(), 0)[0:1] = b"x"'
awk 'BEGIN { print "x" > "file" }'
install -m 644 file installed
git init made-repository
git add file && git commit -m x
git config user.name x
git checkout -b other
git stash
git tag t
echo x > .git/HEAD
echo x > .git/hooks/pre-commit
exec 3>file; echo x >&3
exec 3<>file; echo x >&3
exec 3<file; echo x > /proc/self/fd/3
cat file > /proc/self/cwd/file
echo x > /proc/$$/cwd/new
(cd sub && echo x > inner)
sh -c 'echo x > file'
bash -c 'echo x > file'
env -i /bin/sh -c 'echo x > file'
xargs -I{} touch {} < list
find . -name file -delete
find . -name file -exec rm {} +
tar cf archive.tar file
tar xf archive.tar
gzip file
make -f rules
split -b 1 file part
csplit file 1
sort -o file file
patch -p0 < change
ed file < edits
echo x | cat > "$PWD/new"
mkfifo pipe
mknod node p
(sleep 0.01; echo late > new) & wait
nohup sh -c 'echo x > new' > /dev/null 2>&1
setsid sh -c 'echo x > new'
unshare -Urm sh -c 'echo x > file'
mount --bind sub empty
cp --remove-destination list file
cp -al sub linked
mv -T sub empty
echo x > ../outside
echo x > "$HOME/.profile"
echo x > /tmp/heddle-plan-mode-was-here
"#;

#[test]
fn nothing_is_written_in_plan_mode() {
    let commands: Vec<&str> = WRITES.lines().filter(|line| !line.is_empty()).collect();
    assert!(commands.len() >= 60, "{}", commands.len());
    let call = |(number, command): (usize, &&str)| {
        let arguments = json!({ "cmd": command, "sandbox_permissions": "require_escalated" });
        // Each is tried as it is, and with a request to leave the sandbox.
        let plain = script::call(&format!("p{number}"), "exec_command", json!({ "cmd": command }));
        [plain, script::call(&format!("e{number}"), "exec_command", arguments)]
    };
    let mut calls: Vec<Value> = commands.iter().enumerate().flat_map(call).collect();
    let patch = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch";
    calls.push(script::call(
        "patch",
        "exec_command",
        json!({ "cmd": format!("apply_patch <<'E'\n{patch}\nE") }),
    ));
    // What must work: reading, and building in the directory that is made for it.
    let works = "cat file && cp -r . \"$TMPDIR/w\" && cd \"$TMPDIR/w\" && echo built > out && cat out && pwd";
    calls.push(script::call("works", "exec_command", json!({ "cmd": works })));
    let server = ModelServer::start(json!([script::response(calls), proposal()])).unwrap();
    let lab = lab_for(&server);
    for (path, text) in [
        ("file", "aaaa\n"),
        ("list", "listed\n"),
        ("sub/inner", "inner\n"),
        ("rules", "all:\n\techo x > made\n"),
        ("edits", "1d\nw\nq\n"),
        ("change", "--- file\n+++ file\n@@ -1 +1 @@\n-aaaa\n+bbbb\n"),
    ] {
        lab.workspace.write(path, text).unwrap();
    }
    fs::create_dir_all(lab.workspace.path().join("empty")).unwrap();
    // Rules that take commands out of the sandbox do not count here.
    lab.home
        .write("rules/default.rules", "prefix_rule(pattern=[\"touch\"], decision=\"allow\")\n")
        .unwrap();
    let (workspace, user) = (lab.workspace.path().to_owned(), lab.home.user().to_owned());
    let before = (files(&workspace), files(&user));
    let ended = ran(&lab, &["--plan", "-s", "danger-full-access", "try"]);
    assert_eq!((files(&workspace), files(&user)), before);
    assert!(!workspace.join("../outside").exists());
    assert!(!Path::new("/tmp/heddle-plan-mode-was-here").exists());

    let output = |id: &str| {
        let requests = server.requests();
        let items = requests[1].body["input"].as_array().unwrap().clone();
        let found =
            items.into_iter().find(|item| item["call_id"] == id && item["output"].is_string());
        found.unwrap_or_else(|| panic!("no output of {id}"))["output"].as_str().unwrap().to_owned()
    };
    let built = output("works");
    assert!(built.contains("aaaa\nbuilt\n"), "{built}");
    let scratch = built.lines().last().unwrap().trim_end_matches("/w").to_owned();
    assert!(scratch.contains("heddle-plan-"), "{built}");
    assert!(!Path::new(&scratch).exists(), "{scratch} was left behind");
    drop(ended);
}
