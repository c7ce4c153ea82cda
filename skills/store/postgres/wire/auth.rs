//! The way in: TLS first, then who we are, then proof of the password.

use super::client::Client;
use super::socket::{Plain, Socket};
use super::url::{ChannelBinding as Binding, Place, SslMode, Target};
use super::{WireError, tls};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use std::io::{Read, Write};
use std::time::Instant;

/// The server's word for a login that its list of hosts does not allow.
const NOT_ALLOWED: &str = "28000";

impl Client {
    /// Connects and logs in.
    ///
    /// Errors: a server that is away, refuses the login, or is not secured as the target says.
    pub fn connect(target: &Target) -> Result<Self, WireError> {
        let until = Instant::now() + target.connect_timeout;
        if target.ssl_mode == SslMode::Disable {
            return log_in(Socket::Plain(Plain::connect(&target.place, until)?), target);
        }
        let plain = Plain::connect(&target.place, until)?;
        let tried = encrypted(plain, target).and_then(|socket| match socket {
            Some(socket) => log_in(socket, target).map(Some),
            None => Ok(None),
        });
        let error = match tried {
            Ok(Some(client)) => return Ok(client),
            Ok(None) => WireError::Insecure(
                "the server takes no TLS: switch it on there (ssl = on), or say sslmode=disable in the URL if \
                 nobody else can listen on the way"
                    .into(),
            ),
            // What only the encrypted way meets is worth a try in the clear.
            Err(error) if matches!(error, WireError::Insecure(_)) || error.code() == Some(NOT_ALLOWED) => {
                error
            }
            Err(error) => return Err(error),
        };
        if target.ssl_mode == SslMode::Prefer && target.channel_binding != Binding::Require {
            return log_in(Socket::Plain(Plain::connect(&target.place, until)?), target);
        }
        Err(error)
    }
}

/// Asks for TLS; `None` where the server has none.
fn encrypted(mut plain: Plain, target: &Target) -> Result<Option<Socket>, WireError> {
    let mut ask = BytesMut::new();
    frontend::ssl_request(&mut ask);
    plain.write_all(&ask)?;
    // One byte and no more: what came behind it in the clear would be taken for what came through TLS.
    let mut answer = [0];
    plain.read_exact(&mut answer)?;
    match answer[0] {
        b'S' => tls::secure(plain, target).map(|stream| Some(Socket::Tls(stream))),
        b'N' => Ok(None),
        _ => Err(WireError::Lost("what answers there is no PostgreSQL server".into())),
    }
}

fn log_in(socket: Socket, target: &Target) -> Result<Client, WireError> {
    let mut client = Client::new(socket);
    let mut parameters = vec![
        ("user", target.user.as_str()),
        ("database", &target.database),
        ("application_name", &target.application_name),
        ("client_encoding", "UTF8"),
    ];
    parameters.extend(target.options.as_deref().map(|options| ("options", options)));
    frontend::startup_message(parameters, client.out())?;
    client.send()?;
    prove(&mut client, target)?;
    loop {
        match client.read()? {
            Message::BackendKeyData(_) => {}
            Message::ReadyForQuery(_) => break,
            Message::ErrorResponse(body) => return Err(client.told(&body)),
            _ => return Err(client.unexpected()),
        }
    }
    client.socket().logged_in()?;
    Ok(client)
}

fn refused(text: &str) -> WireError {
    WireError::Unproven(text.to_owned())
}

fn prove(client: &mut Client, target: &Target) -> Result<(), WireError> {
    let password = || {
        let password = target.password.as_ref().map(|password| password.expose().as_bytes());
        password.ok_or_else(|| refused("the server wants a password, and the URL has none"))
    };
    let unbound = || {
        if target.channel_binding == Binding::Require {
            return Err(refused(
                "the server does not bind the login to TLS as channel_binding=require demands",
            ));
        }
        Ok(())
    };
    match client.read()? {
        Message::AuthenticationOk => return unbound(),
        Message::AuthenticationCleartextPassword => {
            unbound()?;
            let in_the_clear = matches!(client.socket(), Socket::Plain(_));
            if in_the_clear && matches!(target.place, Place::Tcp(..)) {
                return Err(refused(
                    "the server wants the password in the clear: set sslmode=require or more",
                ));
            }
            frontend::password_message(password()?, client.out())?;
        }
        Message::AuthenticationMd5Password(body) => {
            unbound()?;
            let proof = md5_hash(target.user.as_bytes(), password()?, body.salt());
            frontend::password_message(proof.as_bytes(), client.out())?;
        }
        Message::AuthenticationSasl(body) => return scram(client, target, &body, password()?),
        Message::ErrorResponse(body) => return Err(client.told(&body)),
        _ => return Err(refused("the server wants another proof than a password")),
    }
    client.send()?;
    accepted(client)
}

fn accepted(client: &mut Client) -> Result<(), WireError> {
    match client.read()? {
        Message::AuthenticationOk => Ok(()),
        Message::ErrorResponse(body) => Err(client.told(&body)),
        _ => Err(client.unexpected()),
    }
}

/// Which of the server's mechanisms is used, and what it is bound to.
fn mechanism(
    client: &mut Client,
    target: &Target,
    body: &AuthenticationSaslBody,
) -> Result<(&'static str, ChannelBinding), WireError> {
    let (mut plus, mut plain) = (false, false);
    let mut offered = body.mechanisms();
    while let Some(name) = offered.next()? {
        plus |= name == SCRAM_SHA_256_PLUS;
        plain |= name == SCRAM_SHA_256;
    }
    let end_point = match client.socket() {
        Socket::Tls(stream) if target.channel_binding != Binding::Disable => tls::end_point(&stream.conn),
        _ => None,
    };
    match end_point {
        Some(digest) if plus => Ok((SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(digest))),
        _ if target.channel_binding == Binding::Require => {
            Err(refused("the login cannot be bound to TLS as channel_binding=require demands"))
        }
        // Told to the server: one that does offer it knows then that somebody between us left it out.
        Some(_) if plain => Ok((SCRAM_SHA_256, ChannelBinding::unrequested())),
        None if plain => Ok((SCRAM_SHA_256, ChannelBinding::unsupported())),
        _ => Err(refused("the server wants another proof than SCRAM-SHA-256")),
    }
}

fn scram(
    client: &mut Client,
    target: &Target,
    body: &AuthenticationSaslBody,
    password: &[u8],
) -> Result<(), WireError> {
    let (name, binding) = mechanism(client, target, body)?;
    let mut scram = ScramSha256::new(password, binding);
    frontend::sasl_initial_response(name, scram.message(), client.out())?;
    client.send()?;
    match client.read()? {
        Message::AuthenticationSaslContinue(body) => scram.update(body.data())?,
        Message::ErrorResponse(body) => return Err(client.told(&body)),
        _ => return Err(client.unexpected()),
    }
    frontend::sasl_response(scram.message(), client.out())?;
    client.send()?;
    match client.read()? {
        // The server, too, has to know the password.
        Message::AuthenticationSaslFinal(body) => scram.finish(body.data())?,
        Message::ErrorResponse(body) => return Err(client.told(&body)),
        _ => return Err(client.unexpected()),
    }
    accepted(client)
}
