//! [`tool_fn`]: a tool made of an asynchronous closure.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use tools::{Tool, ToolContext, ToolFuture, ToolOutput, ToolSpec};

use crate::tools::output::IntoToolOutput;

type Run = dyn Fn(ToolContext) -> Pin<Box<dyn Future<Output = ToolOutput> + Send>> + Send + Sync;

/// Creates a tool of an asynchronous closure. The model gets the schema of `Args`, with its doc comments.
///
/// The closure gets the arguments, which match the schema, and the call: its id, a way to show progress, and a way to ask
/// for approval. It returns text, [`Json`](crate::tools::Json), or a `Result` whose error is text for the model and marks
/// the call as failed.
///
/// ```
/// use heddle::tools::{Json, tool_fn};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Range {
///     /// The first number.
///     from: u32,
///     /// The last number.
///     to: u32,
/// }
///
/// let primes = tool_fn("primes", "Lists the prime numbers of a range.", |range: Range, cx| async move {
///     if range.to > 1_000 && !cx.confirm("This may take a while. Go on?").await {
///         return Err("the user does not want that many");
///     }
///     let is_prime = |n: &u32| *n > 1 && (2..*n).all(|divisor| n % divisor != 0);
///     Ok(Json((range.from..=range.to).filter(is_prime).collect::<Vec<_>>()))
/// });
/// # let tools = heddle::tools::Tools::new();
/// # tools.add(primes.read_only()).unwrap();
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// # let call = tools.call("primes", serde_json::json!({"from": 5, "to": 12}));
/// # assert_eq!(call.await.text(), "[5,7,11]");
/// # });
/// ```
pub fn tool_fn<Args, Answer>(
    name: impl Into<String>,
    description: impl Into<String>,
    run: impl Fn(Args, ToolContext) -> Answer + Send + Sync + 'static,
) -> FnTool
where
    Args: DeserializeOwned + JsonSchema,
    Answer: Future<Output: IntoToolOutput> + Send + 'static,
{
    let schema = SchemaGenerator::default().into_root_schema_for::<Args>().to_value();
    FnTool {
        spec: ToolSpec::new(name, description, schema),
        run: Box::new(move |context| match context.arguments::<Args>() {
            Ok(args) => {
                let answer = run(args, context);
                Box::pin(async move { answer.await.into_tool_output() })
            }
            Err(refusal) => Box::pin(ready(refusal)),
        }),
    }
}

/// A tool made of a closure by [`tool_fn`].
#[must_use = "give it to a thread, or add it to a registry"]
pub struct FnTool {
    spec: ToolSpec,
    run: Box<Run>,
}

impl FnTool {
    /// Sets the name that is shown to the user.
    pub fn title(self, title: impl Into<String>) -> Self {
        self.describe(|spec| spec.title(title))
    }

    /// Sets the version, for people and logs.
    pub fn version(self, version: impl Into<String>) -> Self {
        self.describe(|spec| spec.version(version))
    }

    /// Lets it run concurrently with other calls.
    pub fn parallel(self) -> Self {
        self.describe(ToolSpec::parallel)
    }

    /// Declares that it changes nothing, so that its calls need no approval.
    pub fn read_only(self) -> Self {
        self.describe(ToolSpec::read_only)
    }

    /// Declares that its effects cannot be undone, so that its calls need approval.
    pub fn destructive(self) -> Self {
        self.describe(ToolSpec::destructive)
    }

    /// Limits the time of a call, including the time that it waits for answers to its own questions.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.describe(|spec| spec.timeout(timeout))
    }

    fn describe(self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        Self { spec: change(self.spec), ..self }
    }
}

impl Tool for FnTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        (self.run)(context)
    }
}

impl fmt::Debug for FnTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}
