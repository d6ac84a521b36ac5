//! Several threads in one host, and several hosts that open the same thread.

use std::sync::Arc;

use heddle::{ErrorKind, ThreadSpec};

use crate::scripted::{Lab, call};

#[test]
fn a_thread_belongs_to_one_host() {
    let lab = Lab::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let thread = lab.heddle.start(lab.spec(ThreadSpec::new(), Vec::new())).await.unwrap();
        thread.turn("hi").run().await.unwrap();
        let id = thread.id().unwrap();
        for heddle in [lab.heddle.clone(), lab.another()] {
            let refused = heddle.start(lab.spec(ThreadSpec::resume(id), Vec::new())).await;
            let error = refused.expect_err("somebody has it");
            assert_eq!(error.kind(), ErrorKind::ThreadInUse, "{error:?}");
        }
        // A fork is another thread.
        let fork = lab.heddle.start(lab.spec(ThreadSpec::fork(id), Vec::new())).await.unwrap();
        fork.turn("and so on").run().await.unwrap();
        // Whoever lets go of it by dropping it lets others have it.
        drop(thread);
        // It works where it worked before, wherever this host would begin.
        let elsewhere = lab.heddle.at(lab.root.path()).unwrap();
        let thread = elsewhere.start(lab.spec(ThreadSpec::resume(id), Vec::new())).await.unwrap();
        assert_eq!(thread.directory(), lab.root.path().join("work").canonicalize().unwrap());
        thread.turn("again").run().await.unwrap();
        thread.close().await;
        let gone = lab.another().resume(fork.id().unwrap()).await;
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::ThreadInUse);
    });
}

#[test]
fn threads_that_do_not_exist() {
    let lab = Lab::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let id = "01a1e055-b282-7523-b985-c798177efe12".parse().unwrap();
    let error = runtime.block_on(lab.heddle.resume(id)).expect_err("there is none");
    assert_eq!((error.kind(), error.thread_id()), (ErrorKind::NoSuchThread, Some(id)));
    let error = futures_util::FutureExt::now_or_never(lab.heddle.resume(id)).unwrap();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Host);
}

/// A host without the line in `main` gets an error that says so, and is not started a second time.
#[tokio::test]
async fn without_the_helper_there_is_no_sandbox() {
    let lab = Lab::new();
    let spec = lab.spec(ThreadSpec::new(), Vec::new()).sandbox(heddle::SandboxMode::ReadOnly);
    let error = lab.heddle.start(spec).await.expect_err("no helper");
    assert_eq!(error.kind(), ErrorKind::Sandbox, "{error:?}");
    assert!(error.to_string().contains("heddle::sandbox_helper()"), "{error}");
}

#[test]
fn many_threads_at_once_on_either_kind_of_runtime() {
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap(),
    ];
    for runtime in runtimes {
        let lab = Arc::new(Lab::new());
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for number in 0..40 {
                let lab = Arc::clone(&lab);
                // A task has to be `Send`.
                tasks.push(tokio::spawn(async move {
                    let answers = vec![vec![call(&format!("c{number}"))]];
                    let spec = lab.spec(ThreadSpec::new(), answers);
                    let thread = lab.heddle.start(spec).await.unwrap();
                    let result = thread.turn("go").run().await.unwrap();
                    assert_eq!(result.items.len(), 2);
                    thread.close().await;
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(lab.runs.lock().unwrap().len(), 40);
    }
}
