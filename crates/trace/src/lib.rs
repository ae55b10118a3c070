//! Traces of cache requests: libcachesim's CSV and its binary form, plain or packed with zstd.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a record of libcachesim's binary form (oracleGeneral): time u32, object u64, size u32,
/// next use i64, all little-endian.
const BINARY_RECORD: usize = 24;

/// One request of a trace.
pub type Request = (u64, u32);

/// Why a trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file can't be read.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not of a known form.
    #[error("{path}: {text}")]
    Form {
        /// Which file.
        path: String,
        /// What is wrong, and where.
        text: String,
    },
}

/// The requests of a file, in their order: (object, size in bytes). A name that ends in `.csv` means
/// lines of time, object, size (further columns and a heading are ignored), all others the binary
/// form; `.zst` behind either means that it is packed.
///
/// # Errors
/// The file can't be read, has a line or record that is not of that form, or holds no requests.
pub fn read(path: &str) -> Result<Vec<Request>, TraceError> {
    let failed = |error| TraceError::File { path: path.to_owned(), error };
    let form = |text: String| TraceError::Form { path: path.to_owned(), text };
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let plain = path.strip_suffix(".zst").unwrap_or(path);
    let input: Box<dyn Read> = if plain == path {
        Box::new(file)
    } else {
        let decoder = ruzstd::decoding::StreamingDecoder::new(file);
        Box::new(decoder.map_err(|error| form(error.to_string()))?)
    };
    let requests = if plain.ends_with(".csv") {
        csv(BufReader::new(input).lines()).map_err(failed)?.map_err(form)?
    } else {
        binary(input).map_err(failed)?
    };
    if requests.is_empty() {
        return Err(form("holds no requests".into()));
    }
    Ok(requests)
}

type Lines<T> = io::Result<Result<T, String>>;

fn csv(lines: impl Iterator<Item = io::Result<String>>) -> Lines<Vec<Request>> {
    let mut requests = Vec::new();
    for (at, line) in lines.enumerate() {
        let line = line?;
        let mut fields = line.split(',').map(str::trim).skip(1);
        let object = fields.next();
        let size = fields.next().and_then(|size| size.parse::<u32>().ok());
        match (object, size) {
            (Some(object), Some(size)) => requests.push((identity(object), size)),
            _ if at == 0 || line.trim().is_empty() => {}
            _ => return Ok(Err(format!("line {}: not time, object, size", at + 1))),
        }
    }
    Ok(Ok(requests))
}

/// Objects are numbers in most traces, and any text in some.
fn identity(object: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    object.parse().unwrap_or_else(|_| {
        let mut hasher = DefaultHasher::new();
        object.hash(&mut hasher);
        hasher.finish()
    })
}

fn binary(mut input: impl Read) -> io::Result<Vec<Request>> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let (records, rest) = bytes.as_chunks::<BINARY_RECORD>();
    if !rest.is_empty() {
        let text = "neither .csv nor records of 24 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let record = |record: &[u8; BINARY_RECORD]| {
        let [_, _, _, _, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, ..] = *record;
        let object = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        (object, u32::from_le_bytes([s0, s1, s2, s3]))
    };
    Ok(records.iter().map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_wrong_ones_named() {
        let lines = |text: &'static str| text.lines().map(|line| Ok(line.to_owned()));
        let read = csv(lines("time,obj,size\n1,7,100\n2,7,100,x\n")).unwrap().unwrap();
        assert_eq!(read, [(7, 100), (7, 100)]);
        let error = csv(lines("1,7,100\n1,2\n")).unwrap().unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn the_binary_form_is_read() {
        let mut bytes = [0; 2 * BINARY_RECORD];
        bytes[4] = 9;
        bytes[12] = 50;
        bytes[28] = 3;
        bytes[36] = 60;
        assert_eq!(binary(&bytes[..]).unwrap(), [(9, 50), (3, 60)]);
        assert!(binary(&bytes[1..]).is_err());
    }
}
