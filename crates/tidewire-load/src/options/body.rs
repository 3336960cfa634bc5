//! The body of a request in the form of the user's options.

use std::path::{Path, PathBuf};

use super::OptionError;
use crate::worker::inputs;
use crate::worker::template::{Escape, Names, Template, TemplateError};

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyOptions {
    /// Any bytes, `text/plain` unless a header states another type.
    Bytes(Vec<u8>),
    /// The bytes of a file, which the plan reads.
    File(PathBuf),
    /// `application/json`.
    Json(String),
    /// `application/x-www-form-urlencoded`.
    Form(Vec<(String, String)>),
    /// `multipart/form-data`.
    Multipart(Vec<PartOptions>),
}

/// A part of a `multipart/form-data` body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOptions {
    /// The name of its field.
    pub name: String,
    /// Its content.
    pub content: PartContent,
    /// The name of the file; that of the content's file by default.
    pub filename: Option<String>,
    /// `application/octet-stream` for a file by default.
    pub content_type: Option<String>,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartContent {
    /// A text, with values.
    Text(String),
    /// The bytes of a file as they are, which the plan reads.
    File(PathBuf),
}

impl BodyOptions {
    pub(super) fn content_type(&self) -> String {
        let fixed = match self {
            Self::Bytes(_) | Self::File(_) => "text/plain",
            Self::Json(_) => "application/json",
            Self::Form(_) => "application/x-www-form-urlencoded",
            Self::Multipart(_) => return format!("multipart/form-data; boundary={BOUNDARY}"),
        };
        fixed.to_owned()
    }

    /// [`Self::template`] of a request, which cannot be given up when its values are known.
    ///
    /// # Errors
    /// The same, and a body that some values may not fit into.
    pub(super) fn http_template(&self, names: &Names) -> Result<Template, OptionError> {
        let template = self.template(names)?;
        match template.may_be_unwritable() {
            false => Ok(template),
            true => Err(OptionError::new(
                "the body of a request has sizes of varint or u32, and of numbers seq, user, rand, now_ms and now_us: \
                 others may not fit when it is sent",
            )),
        }
    }

    /// The body with its values, each escaped for its place.
    ///
    /// # Errors
    /// A wrong template, or a file that cannot be read.
    pub(super) fn template(&self, names: &Names) -> Result<Template, OptionError> {
        let mut template = Template::default();
        let pushed = match self {
            Self::Bytes(bytes) => template.push_message(bytes, names),
            Self::File(path) => template.push_message(&read(path)?, names),
            Self::Json(json) => template.push_json(json.as_bytes(), names),
            Self::Form(fields) => push_fields(&mut template, fields, names),
            Self::Multipart(parts) => {
                for part in parts {
                    part.push(&mut template, names)?;
                }
                template.push_fixed(format!("--{BOUNDARY}--\r\n").as_bytes());
                Ok(())
            }
        };
        pushed.map_err(OptionError::new)?;
        Ok(template)
    }
}

impl PartOptions {
    fn push(&self, template: &mut Template, names: &Names) -> Result<(), OptionError> {
        let file = match &self.content {
            PartContent::Text(_) => None,
            PartContent::File(path) => Some((read(path)?, path.file_name().unwrap_or_default())),
        };
        let filename = self.filename.clone();
        let filename = filename.or_else(|| Some(file.as_ref()?.1.to_string_lossy().into_owned()));
        let usual = file.as_ref().map(|_| "application/octet-stream".to_owned());
        let content_type = self.content_type.clone().or(usual);
        template.push_fixed(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"").as_bytes(),
        );
        let mut push = |text: &str, escape| {
            let pushed = template.push_escaped(text.as_bytes(), names, escape);
            pushed.map_err(OptionError::new)
        };
        push(&self.name, Escape::Quoted)?;
        if let Some(filename) = &filename {
            push("\"; filename=\"", Escape::None)?;
            push(filename, Escape::Quoted)?;
        }
        push("\"", Escape::None)?;
        if let Some(content_type) = &content_type {
            push("\r\nContent-Type: ", Escape::None)?;
            push(content_type, Escape::Header)?;
        }
        push("\r\n\r\n", Escape::None)?;
        match (&self.content, file) {
            (PartContent::Text(text), _) => push(text, Escape::None)?,
            (_, Some((bytes, _))) => template.push_fixed(&bytes),
            (_, None) => {}
        }
        template.push_fixed(b"\r\n");
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, OptionError> {
    inputs::read(path).map_err(|error| OptionError::unreadable(path, &error))
}

fn push_fields(
    template: &mut Template,
    fields: &[(String, String)],
    names: &Names,
) -> Result<(), TemplateError> {
    for (number, (name, value)) in fields.iter().enumerate() {
        if number > 0 {
            template.push_fixed(b"&");
        }
        template.push_escaped(name.as_bytes(), names, Escape::Form)?;
        template.push_fixed(b"=");
        template.push_escaped(value.as_bytes(), names, Escape::Form)?;
    }
    Ok(())
}

/// The line between two parts. No content has it by accident.
const BOUNDARY: &str = "tidewire-4kYw0zJ7QmXb1sVh9TfA";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::template::{Feed, first_values};
    use rand::SeedableRng;

    #[test]
    fn a_body_of_several_parts_is_as_browsers_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a \"b\".bin");
        std::fs::write(&path, b"\x00{{seq}}\xff").unwrap();
        let part = |name: &str, content| PartOptions {
            name: name.into(),
            content,
            filename: None,
            content_type: None,
        };
        let body = BodyOptions::Multipart(vec![
            part("no\"te", PartContent::Text("n={{name}}".into())),
            part("file", PartContent::File(path.clone())),
            PartOptions {
                filename: Some("{{name}}.png".into()),
                content_type: Some("image/png".into()),
                ..part("picture", PartContent::File(path))
            },
        ]);
        let names = Names {
            columns: vec![vec!["name".into()]],
            ..Names::default()
        };
        let feed = Feed {
            columns: names.columns[0].clone(),
            rows: vec![vec![b"x\"\r\ny".to_vec()]],
            ..Feed::default()
        };
        let template = body.template(&names).unwrap();
        let mut random = rand::rngs::SmallRng::seed_from_u64(1);
        let mut out = Vec::new();
        let feeds = [feed];
        let mut values = first_values(&mut random, &[], &feeds);
        template.write(&mut values, &mut out).unwrap();
        let text = String::from_utf8_lossy(&out).replace(BOUNDARY, "B");
        let expected = [
            "--B\r\nContent-Disposition: form-data; name=\"no%22te\"\r\n\r\nn=x\"\r\ny\r\n",
            "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a %22b%22.bin\"\r\n",
            "Content-Type: application/octet-stream\r\n\r\n\0{{seq}}\u{fffd}\r\n",
            "--B\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"x%22%0D%0Ay.png\"\r\n",
            "Content-Type: image/png\r\n\r\n\0{{seq}}\u{fffd}\r\n",
            "--B--\r\n",
        ];
        assert_eq!(text, expected.concat());
        let content_type = body.content_type();
        assert_eq!(
            content_type,
            format!("multipart/form-data; boundary={BOUNDARY}")
        );
    }
}
