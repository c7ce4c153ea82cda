-- The public limit, shared by all instances: how many requests of a client each of them has let pass in a second, told
-- in sums. Lost in a crash of the server, which a minute's window survives.

DROP TABLE request_windows;
CREATE UNLOGGED TABLE request_counts (
    client BYTEA NOT NULL CHECK (length(client) = 16),
    second BIGINT NOT NULL, -- since 1970
    instance BIGINT NOT NULL,
    count BIGINT NOT NULL CHECK (count > 0),
    PRIMARY KEY (client, second, instance)
);
CREATE INDEX request_counts_second ON request_counts(second);
