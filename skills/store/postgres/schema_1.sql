-- The tables of the SQLite store. Times are milliseconds since 1970, money is whole cents, lists and profiles are
-- JSON text. Whoever writes holds the row of the generation until the commit, so that all writes have one order.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    number BIGINT,
    bytes BYTEA,
    CHECK (num_nonnulls(number, bytes) = 1)
);
INSERT INTO meta(key, number) VALUES ('generation', 0);

CREATE TABLE authors (
    id TEXT PRIMARY KEY,
    github_id TEXT NOT NULL DEFAULT '',
    username TEXT NOT NULL DEFAULT '',
    display_name TEXT NOT NULL,
    profile TEXT NOT NULL DEFAULT '{}' CHECK (profile::json IS NOT NULL),
    portfolio TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL,
    generation BIGINT NOT NULL
);
CREATE INDEX authors_generation ON authors(generation);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
    content TEXT NOT NULL
);

CREATE TABLE skills (
    id TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    author TEXT NOT NULL,
    author_id TEXT NOT NULL REFERENCES authors(id),
    profile TEXT NOT NULL CHECK (profile::json IS NOT NULL),
    category TEXT NOT NULL
        CHECK (category IN ('design', 'quality', 'devtools', 'workflow', 'security', 'specialized')),
    tags TEXT NOT NULL CHECK (tags::json IS NOT NULL),
    roles TEXT NOT NULL CHECK (roles::json IS NOT NULL),
    source TEXT NOT NULL CHECK (source IN ('vendor-official', 'community')),
    icon TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    content_bytes BIGINT NOT NULL CHECK (content_bytes >= 0),
    has_front_matter BOOLEAN NOT NULL,
    downloads BIGINT NOT NULL DEFAULT 0 CHECK (downloads >= 0),
    seed_rating BIGINT NOT NULL DEFAULT 0 CHECK (seed_rating BETWEEN 0 AND 500),
    seed_rating_count BIGINT NOT NULL DEFAULT 0 CHECK (seed_rating_count >= 0),
    rating_sum BIGINT NOT NULL DEFAULT 0 CHECK (rating_sum BETWEEN rating_count AND 5 * rating_count),
    rating_count BIGINT NOT NULL DEFAULT 0 CHECK (rating_count >= 0),
    price_cents BIGINT NOT NULL DEFAULT 0 CHECK (price_cents BETWEEN 0 AND 9999),
    featured BOOLEAN NOT NULL DEFAULT false,
    verification TEXT NOT NULL CHECK (verification IN ('vendor', 'service', 'creator', 'none')),
    status TEXT NOT NULL CHECK (status IN ('draft', 'review', 'published', 'rejected', 'unlisted')),
    version TEXT NOT NULL,
    first_published_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL
);
CREATE INDEX skills_generation ON skills(generation);
CREATE INDEX skills_author ON skills(author_id);

CREATE TABLE skill_versions (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    seq BIGINT NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    version TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (skill_id, seq)
);

CREATE TABLE ratings (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    client BYTEA NOT NULL CHECK (length(client) = 16),
    rating BIGINT NOT NULL CHECK (rating BETWEEN 1 AND 5),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (skill_id, client)
);

-- The last counted install of each client; forgotten when its window has passed.
CREATE TABLE installs (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    client BYTEA NOT NULL CHECK (length(client) = 16),
    counted_at BIGINT NOT NULL,
    PRIMARY KEY (skill_id, client)
);

CREATE TABLE install_daily (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    day BIGINT NOT NULL, -- days since 1970
    count BIGINT NOT NULL CHECK (count > 0),
    PRIMARY KEY (skill_id, day)
);

CREATE TABLE reviews (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skills(id),
    decision TEXT NOT NULL CHECK (decision IN ('approve', 'reject')),
    note TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    created_at BIGINT NOT NULL
);
CREATE INDEX reviews_skill ON reviews(skill_id);

CREATE TABLE events (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT NOT NULL CHECK (data::json IS NOT NULL)
);
CREATE FUNCTION events_are_append_only() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'events are append-only'; END $$;
CREATE TRIGGER events_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_are_append_only();

-- What follows is for selling, which has no endpoints yet.

CREATE TABLE purchases (
    id TEXT PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skills(id),
    buyer TEXT NOT NULL,
    price_cents BIGINT NOT NULL CHECK (price_cents > 0),
    platform_bp BIGINT NOT NULL DEFAULT 2000 CHECK (platform_bp BETWEEN 0 AND 10000),
    creator_cents BIGINT NOT NULL CHECK (creator_cents >= 0),
    platform_cents BIGINT NOT NULL CHECK (platform_cents >= 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'paid', 'refunded', 'failed')),
    connector TEXT NOT NULL,
    connector_ref TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (connector, connector_ref),
    CHECK (creator_cents + platform_cents = price_cents)
);
CREATE INDEX purchases_skill ON purchases(skill_id);

CREATE TABLE payouts (
    id TEXT PRIMARY KEY,
    author_id TEXT NOT NULL REFERENCES authors(id),
    cents BIGINT NOT NULL CHECK (cents > 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'sent', 'failed')),
    connector TEXT NOT NULL,
    connector_ref TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Double entry: the lines of one transaction add up to zero.
CREATE TABLE ledger (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction_id TEXT NOT NULL,
    account TEXT NOT NULL, -- 'connector:<name>', 'creator:<author id>', 'platform'
    cents BIGINT NOT NULL CHECK (cents <> 0),
    purchase_id TEXT REFERENCES purchases(id),
    payout_id TEXT REFERENCES payouts(id),
    created_at BIGINT NOT NULL
);
CREATE INDEX ledger_transaction ON ledger(transaction_id);
CREATE INDEX ledger_account ON ledger(account);

CREATE TABLE entitlements (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    buyer TEXT NOT NULL,
    purchase_id TEXT NOT NULL REFERENCES purchases(id),
    granted_at BIGINT NOT NULL,
    revoked_at BIGINT,
    PRIMARY KEY (skill_id, buyer)
);

-- The public limit, shared by all instances: the times of a client's requests in the window. Lost in a crash, which
-- a minute's window survives.
CREATE UNLOGGED TABLE request_windows (
    client BYTEA PRIMARY KEY CHECK (length(client) = 16),
    times BIGINT[] NOT NULL,
    passed BOOLEAN NOT NULL
);
