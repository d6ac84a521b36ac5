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
    LoadedImage::from_bytes(&files::read(path, FILE_BYTES_MAX).map_err(std::io::Error::from)?)
}

impl LoadedImage {
    /// Validates the content of an image file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        Ok(PreparedImage::from_bytes(bytes)?.load(bytes))
    }
}

/// What decoding an image has shown, which takes long: that it is in order, and a smaller one if it is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedImage {
    mime: &'static str,
    /// Sent instead of the image.
    scaled: Option<Vec<u8>>,
}

impl PreparedImage {
    /// Decodes the content of an image file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ImageError> {
        prepare(bytes)
    }

    /// Returns the image to send for `bytes`, of which this was made.
    pub fn load(&self, bytes: &[u8]) -> LoadedImage {
        data_url(self.mime, self.scaled.as_deref().unwrap_or(bytes))
    }

    /// Writes it for another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let scaled = self.scaled.as_deref().unwrap_or_default();
        [self.mime.as_bytes(), b"\n", scaled].concat()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    pub fn parse(written: &[u8]) -> Option<Self> {
        let end = written.iter().position(|byte| *byte == b'\n')?;
        let scaled = &written[end + 1..];
        let mime = FORMATS.map(|format| format.to_mime_type());
        let mime = mime.into_iter().find(|known| known.as_bytes() == &written[..end])?;
        Some(Self { mime, scaled: (!scaled.is_empty()).then(|| scaled.to_owned()) })
    }
}

/// The formats that providers take.
const FORMATS: [ImageFormat; 4] =
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];

fn prepare(bytes: &[u8]) -> Result<PreparedImage, ImageError> {
    let bad = |error: image::ImageError| ImageError::NotAnImage(error.to_string());
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let format = reader
        .format()
        .ok_or_else(|| ImageError::NotAnImage("its first bytes are of no such kind".to_owned()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let decoded = reader.decode().map_err(bad)?;
    if decoded.width().max(decoded.height()) <= SIDE_MAX {
        return Ok(PreparedImage { mime: format.to_mime_type(), scaled: None });
    }
    let (scaled, format) = scale(decoded, format);
    let mut out = Cursor::new(Vec::new());
    scaled.write_to(&mut out, format).map_err(bad)?;
    Ok(PreparedImage { mime: format.to_mime_type(), scaled: Some(out.into_inner()) })
}

fn scale(decoded: DynamicImage, format: ImageFormat) -> (DynamicImage, ImageFormat) {
    let scaled = decoded.resize(SIDE_MAX, SIDE_MAX, FilterType::Triangle);
    match format {
        // A photograph stays a JPEG; as a PNG it would be several times larger.
        ImageFormat::Jpeg => (DynamicImage::ImageRgb8(scaled.into_rgb8()), ImageFormat::Jpeg),
        _ => (scaled, ImageFormat::Png),
    }
}

fn data_url(mime: &str, bytes: &[u8]) -> LoadedImage {
    let mut url = format!("data:{mime};base64,");
    STANDARD.encode_string(bytes, &mut url);
    LoadedImage { url }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{DynamicImage, ImageFormat, ImageReader};

    use super::{ImageError, LoadedImage, PreparedImage, SIDE_MAX, STANDARD};
    use base64::Engine as _;

    fn image_file(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(width, height).write_to(&mut out, format).expect("it encodes");
        out.into_inner()
    }

    #[track_caller]
    fn check(bytes: &[u8], want: Option<(&str, u32, u32)>) {
        let made = PreparedImage::from_bytes(bytes);
        if let Ok(made) = &made {
            assert_eq!(PreparedImage::parse(&made.to_bytes()).as_ref(), Some(made));
        }
        match (made.map(|made| made.load(bytes)), want) {
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
    fn what_was_not_written_here_is_not_read() {
        for bytes in [&b""[..], b"image/png", b"image/svg+xml\nx", b"\nx"] {
            assert_eq!(PreparedImage::parse(bytes), None);
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
