//! A tool that the host program provides, in addition to the built-in ones.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example custom_tool -- "how warm is it in Oslo?"
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::process::ExitCode;
use std::time::Duration;

use heddle::tools::{OutputBody, Tool, ToolContext, ToolFuture, ToolSpec};
use heddle::{Heddle, ThreadSpec};
use schemars::{JsonSchema, schema_for};
use serde::Deserialize;

/// Looks up the temperature of a city.
struct LookUp;

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Name of the city, as in the schema that the model gets.
    city: String,
}

impl Tool for LookUp {
    fn spec(&self) -> ToolSpec {
        let schema = schema_for!(Arguments).to_value();
        ToolSpec::new("look_up", "Returns the temperature in a city.", schema)
            .read_only()
            .parallel()
            .timeout(Duration::from_secs(10))
    }

    fn run<'a>(&'a self, context: ToolContext) -> ToolFuture<'a> {
        Box::pin(async move {
            // The arguments have already been checked against the schema.
            match context.arguments::<Arguments>() {
                Ok(Arguments { city }) => {
                    println!("look_up {city}");
                    OutputBody::Text(format!("4 degrees in {city}"))
                }
                Err(refusal) => refusal,
            }
        })
    }
}

fn main() -> ExitCode {
    if let Some(code) = heddle::sandbox_helper() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("custom_tool: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "How warm is it in Oslo?".to_owned());
    let heddle = Heddle::from_env()?;
    let thread = heddle.start(ThreadSpec::in_dir(".").tool(LookUp)).await?;
    let result = thread.turn(prompt).run().await?;
    println!("{}", result.final_response.as_deref().unwrap_or("(no answer)"));
    Ok(())
}
