//! Prepares image files for a model: validated before they are sent, and no larger than needed.
//!
//! A provider refuses a request with a broken image, and every later request that still contains it. So every
//! image is decoded here once, whatever its file name says.

use std::io::Cursor;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};

/// Largest image file, in bytes.
const FILE_BYTES_MAX: u64 = 20 * 1024 * 1024;
/// Longest side that is sent unchanged; a larger image is scaled down to it.
const SIDE_MAX: u32 = 2048;
/// Memory limit for decoding, so that a small file cannot exhaust memory.
const DECODED_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// A `data:` URL.
    pub url: String,
}

/// Why an image cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error("{0}")]
    Unreadable(#[from] std::io::Error),
    /// The file is not an image of a supported format.
    #[error("it is not a readable PNG, JPEG, GIF or WebP image: {0}")]
    NotAnImage(String),
}

/// Reads and validates an image file.
pub fn load_image(path: &Path) -> Result<LoadedImage, ImageError> {
    encode(files::read(path, FILE_BYTES_MAX).map_err(std::io::Error::from)?)
}

fn encode(bytes: Vec<u8>) -> Result<LoadedImage, ImageError> {
    let bad = |error: image::ImageError| ImageError::NotAnImage(error.to_string());
    let mut reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format()?;
    let format = reader
        .format()
        .ok_or_else(|| ImageError::NotAnImage("its first bytes are of no such kind".to_owned()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let decoded = reader.decode().map_err(bad)?;
    if decoded.width().max(decoded.height()) <= SIDE_MAX {
        return Ok(data_url(format, &bytes));
    }
    let (scaled, format) = scale(decoded, format);
    let mut out = Cursor::new(Vec::new());
    scaled.write_to(&mut out, format).map_err(bad)?;
    Ok(data_url(format, out.get_ref()))
}

fn scale(decoded: DynamicImage, format: ImageFormat) -> (DynamicImage, ImageFormat) {
    let scaled = decoded.resize(SIDE_MAX, SIDE_MAX, FilterType::Triangle);
    match format {
        // A photograph stays a JPEG; as a PNG it would be several times larger.
        ImageFormat::Jpeg => (DynamicImage::ImageRgb8(scaled.into_rgb8()), ImageFormat::Jpeg),
        _ => (scaled, ImageFormat::Png),
    }
}

fn data_url(format: ImageFormat, bytes: &[u8]) -> LoadedImage {
    let mut url = format!("data:{};base64,", format.to_mime_type());
    STANDARD.encode_string(bytes, &mut url);
    LoadedImage { url }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{DynamicImage, ImageFormat, ImageReader};

    use super::{ImageError, LoadedImage, SIDE_MAX, STANDARD, encode};
    use base64::Engine as _;

    fn image_file(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(width, height).write_to(&mut out, format).expect("it encodes");
        out.into_inner()
    }

    #[track_caller]
    fn check(bytes: &[u8], want: Option<(&str, u32, u32)>) {
        match (encode(bytes.to_vec()), want) {
            (Ok(LoadedImage { url }), Some((mime, width, height))) => {
                let (head, body) = url.split_once(";base64,").expect("a data URL");
                assert_eq!(head, format!("data:{mime}"));
                let bytes = STANDARD.decode(body).expect("base64");
                let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
                let size = reader.expect("a format").into_dimensions().expect("a size");
                assert_eq!(size, (width, height));
            }
            (Err(ImageError::NotAnImage(_)), None) => {}
            (got, want) => panic!("{got:?} is not {want:?}"),
        }
    }

    #[test]
    fn images() {
        let png = image_file(4, 3, ImageFormat::Png);
        check(&png, Some(("image/png", 4, 3)));
        check(&png[..png.len() - 20], None);
        check(b"this is text", None);
        check(b"", None);
        check(&image_file(2, 2, ImageFormat::Gif), Some(("image/gif", 2, 2)));
        check(&image_file(2, 2, ImageFormat::WebP), Some(("image/webp", 2, 2)));
        check(&image_file(5000, 10, ImageFormat::Png), Some(("image/png", SIDE_MAX, 4)));
        check(&image_file(10, 4096, ImageFormat::Jpeg), Some(("image/jpeg", 5, SIDE_MAX)));
    }
}
