//! A tool that the host program provides, in addition to the built-in ones, and an answer with a type.
//!
//!     OPENAI_API_KEY=… cargo run -p heddle --example custom_tool -- "how warm is it in Oslo?"
#![expect(clippy::print_stdout, reason = "an example prints its results")]
use std::{error::Error, process::ExitCode};

use heddle::{Heddle, ThreadSpec, tools::tool_fn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// Name of the city, as in the schema that the model gets.
    city: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Weather {
    city: String,
    degrees: i32,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    heddle::sandbox_helper().map_or_else(run, Ok)
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "How warm is it in Oslo?".to_owned());
    let about = "Returns the temperature in a city.";
    let look_up = tool_fn("look_up", about, |place: Place, _| async move {
        println!("look_up {}", place.city);
        format!("4 degrees in {}", place.city)
    });
    let spec = ThreadSpec::in_dir(".").tool(look_up.read_only());
    let thread = Heddle::from_env()?.start(spec).await?;
    let weather: Weather = thread.turn(prompt).output::<Weather>()?.run().await?.json()?;
    println!("{}: {} degrees", weather.city, weather.degrees);
    Ok(ExitCode::SUCCESS)
}
