//! Numbers and byte strings in binary payloads.

use super::protocol::Malformed;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Writing. Nothing fails but a length beyond 32 bits.
pub(crate) trait Give {
    fn put(&mut self, bytes: &[u8]);

    fn bool(&mut self, value: bool) -> Result<(), Malformed> {
        self.put(&[u8::from(value)]);
        Ok(())
    }

    fn u32(&mut self, value: u32) -> Result<(), Malformed> {
        self.put(&value.to_le_bytes());
        Ok(())
    }

    fn u64(&mut self, value: u64) -> Result<(), Malformed> {
        self.put(&value.to_le_bytes());
        Ok(())
    }

    fn u32_of(&mut self, length: usize) -> Result<(), Malformed> {
        self.u32(u32::try_from(length).map_err(|_| Malformed("something is too long"))?)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.u32_of(bytes.len())?;
        self.put(bytes);
        Ok(())
    }

    fn os(&mut self, text: &OsStr) -> Result<(), Malformed> {
        self.bytes(text.as_bytes())
    }
}

impl Give for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Reading; what is left is in it.
pub(crate) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    fn some(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (some, rest) = self.0.split_at_checked(length).ok_or(Malformed("a payload is too short"))?;
        self.0 = rest;
        Ok(some)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.some(N)?.try_into().map_err(|_| Malformed("a payload is too short"))
    }

    /// 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        }
    }

    /// Four bytes, the lowest first.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, the lowest first.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// As many bytes as the number before them says.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed("something is too long"))?;
        self.some(length)
    }

    /// As [`Take::bytes`], of the system's own text.
    pub fn os(&mut self) -> Result<OsString, Malformed> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    /// Nothing may be left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a payload is too long")) }
    }
}
