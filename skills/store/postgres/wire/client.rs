//! Questions and answers on one connection that is logged in.

use super::WireError;
use super::socket::{Patience, Socket};
use super::values::{Row, ToText};
use bytes::{BufMut, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{ErrorResponseBody, Header, Message, RowDescriptionBody};
use postgres_protocol::message::frontend::{self, BindError};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Largest message of the server: far more than the largest row, which holds a content.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes asked for at once.
const READ_BYTES: usize = 16 << 10;
/// Statements kept prepared; a further one is prepared anew each time.
const STATEMENTS: usize = 128;
/// Values of one statement, as the protocol counts them.
const TEXT_FORMAT: i16 = 0;

/// A statement that the server has prepared.
#[derive(Clone)]
struct Statement {
    name: String,
    columns: Arc<[String]>,
}

/// What a statement gave.
#[derive(Default)]
struct Answer {
    rows: Vec<Row>,
    touched: u64,
}

/// One connection.
pub struct Client {
    socket: Socket,
    incoming: BytesMut,
    outgoing: BytesMut,
    statements: HashMap<String, Statement>,
    broken: bool,
}

impl Client {
    /// On a socket that is connected, not yet logged in.
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            statements: HashMap::new(),
            broken: false,
        }
    }

    /// The socket.
    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Where messages are put together before they are sent.
    pub(super) fn out(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Whether it is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Rows of a statement, which is prepared when it is first met.
    pub fn query(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<Vec<Row>, WireError> {
        self.run(sql, values).map(|answer| answer.rows)
    }

    /// Runs a statement; how many rows it has touched.
    pub fn execute(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<u64, WireError> {
        self.run(sql, values).map(|answer| answer.touched)
    }

    /// Runs statements without values; what they give is dropped.
    pub fn batch(&mut self, sql: &str) -> Result<(), WireError> {
        self.whole(|client| {
            frontend::query(sql, client.out())?;
            client.send()?;
            loop {
                match client.read()? {
                    Message::RowDescription(_)
                    | Message::DataRow(_)
                    | Message::CommandComplete(_)
                    | Message::EmptyQueryResponse => {}
                    Message::ReadyForQuery(_) => return Ok(()),
                    Message::ErrorResponse(body) => return Err(client.refused(&body)),
                    _ => return Err(client.unexpected()),
                }
            }
        })
    }

    /// Runs `COPY .. TO STDOUT`; what the server sends goes into `sink`.
    pub fn copy_out(&mut self, sql: &str, sink: &mut dyn Write) -> Result<(), WireError> {
        self.whole(|client| {
            frontend::query(sql, client.out())?;
            client.send()?;
            loop {
                match client.read()? {
                    Message::CopyOutResponse(_) | Message::CopyDone | Message::CommandComplete(_) => {}
                    // One that cannot be written is not read to its end: the connection goes.
                    Message::CopyData(body) => sink.write_all(body.data())?,
                    Message::ReadyForQuery(_) => return Ok(()),
                    Message::ErrorResponse(body) => return Err(client.refused(&body)),
                    _ => return Err(client.unexpected()),
                }
            }
        })
    }

    /// Runs `COPY .. FROM STDIN` with what `source` fills a buffer with, until it fills in nothing; how many
    /// rows the server has taken.
    ///
    /// Errors: the server's; what `source` met, outside, after which nothing of it is taken.
    pub fn copy_in<E: ToString>(
        &mut self,
        sql: &str,
        mut source: impl FnMut(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Result<u64, E>, WireError> {
        self.whole(|client| {
            frontend::query(sql, client.out())?;
            client.send()?;
            match client.read()? {
                Message::CopyInResponse(_) => {}
                Message::ErrorResponse(body) => return Err(client.refused(&body)),
                _ => return Err(client.unexpected()),
            }
            let mut chunk = Vec::new();
            let failed = loop {
                chunk.clear();
                match source(&mut chunk) {
                    Ok(()) if chunk.is_empty() => break None,
                    Ok(()) => {
                        frontend::CopyData::new(chunk.as_slice())?.write(client.out());
                        client.send()?;
                    }
                    Err(error) => break Some(error),
                }
            };
            match &failed {
                None => frontend::copy_done(client.out()),
                Some(_) => frontend::copy_fail("the source cannot be read", client.out())?,
            }
            client.send()?;
            let done = client.rest(&Arc::default());
            match failed {
                Some(_) if client.broken => done.map(|_| Ok(0)),
                Some(error) => Ok(Err(error)),
                None => done.map(|answer| Ok(answer.touched)),
            }
        })
    }

    /// How long answers may take from now on.
    pub fn set_patience(&mut self, patience: Patience) -> Result<(), WireError> {
        Ok(self.socket.set_patience(patience)?)
    }

    /// One question with its whole answer. Whatever else than the server's refusal ends it leaves the
    /// connection in no known state.
    fn whole<T>(&mut self, ask: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if self.broken {
            return Err(WireError::Lost("the connection to the database is lost".into()));
        }
        let answer = ask(self);
        self.broken |=
            matches!(answer, Err(WireError::Lost(_) | WireError::Insecure(_) | WireError::Unproven(_)));
        answer
    }

    fn run(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<Answer, WireError> {
        self.whole(|client| {
            let statement = client.prepared(sql)?;
            let write = |value: &&dyn ToText, out: &mut BytesMut| {
                let Some(text) = value.to_text() else { return Ok(IsNull::Yes) };
                out.put_slice(text.as_bytes());
                Ok(IsNull::No)
            };
            let formats = [TEXT_FORMAT];
            frontend::bind("", &statement.name, formats, values, write, formats, client.out()).map_err(
                |error| match error {
                    BindError::Conversion(error) => WireError::Lost(error.to_string()),
                    BindError::Serialization(error) => error.into(),
                },
            )?;
            frontend::execute("", 0, client.out())?;
            frontend::sync(client.out());
            client.send()?;
            client.rest(&statement.columns)
        })
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, WireError> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let keep = self.statements.len() < STATEMENTS;
        let name = if keep { format!("s{}", self.statements.len()) } else { String::new() };
        frontend::parse(&name, sql, [], self.out())?;
        frontend::describe(b'S', &name, self.out())?;
        frontend::sync(self.out());
        self.send()?;
        let mut columns = Vec::new();
        loop {
            match self.read()? {
                Message::ParseComplete | Message::ParameterDescription(_) | Message::NoData => {}
                Message::RowDescription(body) => columns = names(&body)?,
                Message::ReadyForQuery(_) => break,
                Message::ErrorResponse(body) => return Err(self.refused(&body)),
                _ => return Err(self.unexpected()),
            }
        }
        let statement = Statement { name, columns: columns.into() };
        if keep {
            self.statements.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }

    /// What comes until the server is ready for another question.
    fn rest(&mut self, columns: &Arc<[String]>) -> Result<Answer, WireError> {
        let mut answer = Answer::default();
        loop {
            match self.read()? {
                Message::BindComplete | Message::EmptyQueryResponse => {}
                Message::DataRow(body) => {
                    let ranges = body.ranges().collect()?;
                    let bytes = body.buffer_bytes().clone();
                    answer.rows.push(Row::new(Arc::clone(columns), bytes, ranges));
                }
                Message::CommandComplete(body) => answer.touched = touched(body.tag()?),
                Message::ReadyForQuery(_) => return Ok(answer),
                Message::ErrorResponse(body) => return Err(self.refused(&body)),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// The server's refusal, after which it is ready for the next question, unless it has ended the
    /// connection.
    fn refused(&mut self, body: &ErrorResponseBody) -> WireError {
        let error = self.told(body);
        while !self.broken {
            match self.read() {
                Ok(Message::ReadyForQuery(_)) => break,
                Ok(_) => {}
                Err(_) => self.broken = true,
            }
        }
        error
    }

    /// What the server says.
    pub(super) fn told(&mut self, body: &ErrorResponseBody) -> WireError {
        let (mut code, mut message) = (String::new(), String::new());
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                // The severity that is never translated.
                b'V' => self.broken |= matches!(field.value_bytes(), b"FATAL" | b"PANIC"),
                b'C' => code = text(),
                b'M' => message = text(),
                _ => {}
            }
        }
        WireError::Told { code, message }
    }

    /// A message that has no place here.
    pub(super) fn unexpected(&mut self) -> WireError {
        self.broken = true;
        WireError::Lost("the server says what cannot be understood".into())
    }

    /// Sends what was put together.
    pub(super) fn send(&mut self) -> Result<(), WireError> {
        let sent = self.socket.write_all(&self.outgoing).and_then(|()| self.socket.flush());
        self.outgoing.clear();
        // A server that ends a connection says why before it does.
        if let Err(error) = sent {
            return Err(self.last_words().unwrap_or_else(|| error.into()));
        }
        Ok(())
    }

    fn last_words(&mut self) -> Option<WireError> {
        self.broken = true;
        match self.read().ok()? {
            Message::ErrorResponse(body) => Some(self.told(&body)),
            _ => None,
        }
    }

    /// The next message that is an answer.
    pub(super) fn read(&mut self) -> Result<Message, WireError> {
        loop {
            let header = Header::parse(&self.incoming)?;
            let bytes = header.map(|header| usize::try_from(header.len()).unwrap_or(usize::MAX));
            if bytes.is_some_and(|bytes| bytes > MESSAGE_BYTES_MAX) {
                let text = format!("the server sends a message of more than {MESSAGE_BYTES_MAX} bytes");
                return Err(WireError::Lost(text));
            }
            match Message::parse(&mut self.incoming)? {
                Some(
                    Message::NoticeResponse(_)
                    | Message::ParameterStatus(_)
                    | Message::NotificationResponse(_),
                ) => {}
                Some(message) => return Ok(message),
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        let count = loop {
            match self.socket.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.incoming.extend_from_slice(&bytes[..count]);
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.broken {
            self.outgoing.clear();
            frontend::terminate(&mut self.outgoing);
            // It ends either way; said, the server does not log it as a loss.
            let _ = self.socket.write_all(&self.outgoing).and_then(|()| self.socket.flush());
        }
    }
}

fn names(body: &RowDescriptionBody) -> io::Result<Vec<String>> {
    body.fields().map(|field| Ok(field.name().to_owned())).collect()
}

/// Rows touched, the last word of a tag such as `INSERT 0 5`.
fn touched(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::url::Target;
    use super::*;
    use std::net::TcpListener;

    fn target(port: u16) -> Target {
        let url = format!("postgresql://a@127.0.0.1:{port}/d?sslmode=disable&connect_timeout=1");
        Target::parse(&url).unwrap()
    }

    /// A client on a server that lets everybody in and then answers whatever it is asked with these bytes.
    fn on(answer: Vec<u8>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
            stream.read_exact(&mut rest).unwrap();
            stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            let mut header = [0; 5];
            stream.read_exact(&mut header).unwrap();
            stream.write_all(&answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has gone, so that nothing is reset under it.
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        Client::connect(&target(port)).unwrap()
    }

    fn asked(answer: Vec<u8>) -> (WireError, Client) {
        let mut client = on(answer);
        (client.batch("SELECT 1").unwrap_err(), client)
    }

    #[test]
    fn a_server_that_says_nothing_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = Client::connect(&target(listener.local_addr().unwrap().port())).err().unwrap();
        assert_eq!(error.to_string(), "the server does not answer in time");
    }

    #[test]
    fn damaged_answers_cause_no_panic_and_no_wait() {
        let whole = b"1\0\0\0\x04t\0\0\0\x06\0\0T\0\0\0\x1b\0\x01nn\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0\
            Z\0\0\0\x05I2\0\0\0\x04D\0\0\0\x0c\0\x01\0\0\0\x0242C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
        let rows = on(whole.to_vec()).query("SELECT 42", &[]).unwrap();
        assert_eq!(rows[0].get::<i64>("nn").unwrap(), 42, "the answer is right before it is damaged");
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.to_vec();
                damaged[at] = byte;
                if let Ok(rows) = on(damaged).query("SELECT 42", &[]) {
                    for row in rows {
                        let _ = row.get::<i64>("nn");
                    }
                }
            }
        }
    }

    #[test]
    fn an_answer_that_is_too_large_broken_or_missing_ends_the_connection() {
        let large = [&b"D"[..], &u32::try_from(MESSAGE_BYTES_MAX + 1).unwrap().to_be_bytes()].concat();
        for (answer, word) in [
            (large, "more than"),
            (b"D\xff\xff\xff\xff".to_vec(), "length"),
            (b"Z\0\0\0\x03".to_vec(), "length"),
            (b"?\0\0\0\x04".to_vec(), "unknown message"),
            (b"G\0\0\0\x07\0\0\0".to_vec(), "cannot be understood"),
            (b"Z\0\0".to_vec(), "closed the connection"),
            (Vec::new(), "closed the connection"),
        ] {
            let (error, mut client) = asked(answer.clone());
            assert!(error.to_string().contains(word), "{answer:?}: {error}");
            assert!(client.is_broken());
            assert!(matches!(client.batch("SELECT 1"), Err(WireError::Lost(_))), "nothing more is asked");
        }
    }

    #[test]
    fn a_refusal_carries_its_code_and_a_fatal_one_ends_the_connection() {
        let told = b"E\0\0\0\x1eVFATAL\0C57P01\0Mgo away\0\0".to_vec();
        let mut told = told;
        told[4] = u8::try_from(told.len() - 1).unwrap();
        let (error, client) = asked(told);
        assert_eq!(error, WireError::Told { code: "57P01".into(), message: "go away".into() });
        assert!(client.is_broken());
    }
}
