-- Times are milliseconds since 1970, money is whole cents, lists and profiles are JSON text.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta(key, value) VALUES ('generation', 0);

CREATE TABLE authors (
    id TEXT PRIMARY KEY,
    github_id TEXT NOT NULL DEFAULT '',
    username TEXT NOT NULL DEFAULT '',
    display_name TEXT NOT NULL,
    profile TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(profile)),
    portfolio TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX authors_generation ON authors(generation);

CREATE TABLE blobs (
    digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE skills (
    id TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    author TEXT NOT NULL,
    author_id TEXT NOT NULL REFERENCES authors(id),
    profile TEXT NOT NULL CHECK (json_valid(profile)),
    category TEXT NOT NULL
        CHECK (category IN ('design', 'quality', 'devtools', 'workflow', 'security', 'specialized')),
    tags TEXT NOT NULL CHECK (json_valid(tags)),
    roles TEXT NOT NULL CHECK (json_valid(roles)),
    source TEXT NOT NULL CHECK (source IN ('vendor-official', 'community')),
    icon TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    content_bytes INTEGER NOT NULL CHECK (content_bytes >= 0),
    has_front_matter INTEGER NOT NULL CHECK (has_front_matter IN (0, 1)),
    downloads INTEGER NOT NULL DEFAULT 0 CHECK (downloads >= 0),
    seed_rating INTEGER NOT NULL DEFAULT 0 CHECK (seed_rating BETWEEN 0 AND 500),
    seed_rating_count INTEGER NOT NULL DEFAULT 0 CHECK (seed_rating_count >= 0),
    rating_sum INTEGER NOT NULL DEFAULT 0 CHECK (rating_sum BETWEEN rating_count AND 5 * rating_count),
    rating_count INTEGER NOT NULL DEFAULT 0 CHECK (rating_count >= 0),
    price_cents INTEGER NOT NULL DEFAULT 0 CHECK (price_cents BETWEEN 0 AND 9999),
    featured INTEGER NOT NULL DEFAULT 0 CHECK (featured IN (0, 1)),
    verification TEXT NOT NULL CHECK (verification IN ('vendor', 'service', 'creator', 'none')),
    status TEXT NOT NULL CHECK (status IN ('draft', 'review', 'published', 'rejected', 'unlisted')),
    version TEXT NOT NULL,
    first_published_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
CREATE INDEX skills_generation ON skills(generation);
CREATE INDEX skills_author ON skills(author_id);

CREATE TABLE skill_versions (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    seq INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    version TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (skill_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE ratings (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    client BLOB NOT NULL CHECK (length(client) = 16),
    rating INTEGER NOT NULL CHECK (rating BETWEEN 1 AND 5),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (skill_id, client)
) STRICT, WITHOUT ROWID;

-- The last counted install of each client; forgotten when its window has passed.
CREATE TABLE installs (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    client BLOB NOT NULL CHECK (length(client) = 16),
    counted_at INTEGER NOT NULL,
    PRIMARY KEY (skill_id, client)
) STRICT, WITHOUT ROWID;

CREATE TABLE install_daily (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    day INTEGER NOT NULL, -- days since 1970
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (skill_id, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE reviews (
    seq INTEGER PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skills(id),
    decision TEXT NOT NULL CHECK (decision IN ('approve', 'reject')),
    note TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES blobs(digest),
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX reviews_skill ON reviews(skill_id);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    data TEXT NOT NULL CHECK (json_valid(data))
) STRICT;
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

-- What follows is for selling, which has no endpoints yet.

CREATE TABLE purchases (
    id TEXT PRIMARY KEY,
    skill_id TEXT NOT NULL REFERENCES skills(id),
    buyer TEXT NOT NULL,
    price_cents INTEGER NOT NULL CHECK (price_cents > 0),
    platform_bp INTEGER NOT NULL DEFAULT 2000 CHECK (platform_bp BETWEEN 0 AND 10000),
    creator_cents INTEGER NOT NULL CHECK (creator_cents >= 0),
    platform_cents INTEGER NOT NULL CHECK (platform_cents >= 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'paid', 'refunded', 'failed')),
    connector TEXT NOT NULL,
    connector_ref TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (connector, connector_ref),
    CHECK (creator_cents + platform_cents = price_cents)
) STRICT;
CREATE INDEX purchases_skill ON purchases(skill_id);

-- Double entry: the lines of one transaction add up to zero.
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY,
    transaction_id TEXT NOT NULL,
    account TEXT NOT NULL, -- 'connector:<name>', 'creator:<author id>', 'platform'
    cents INTEGER NOT NULL CHECK (cents <> 0),
    purchase_id TEXT REFERENCES purchases(id),
    payout_id TEXT REFERENCES payouts(id),
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_transaction ON ledger(transaction_id);
CREATE INDEX ledger_account ON ledger(account);

CREATE TABLE payouts (
    id TEXT PRIMARY KEY,
    author_id TEXT NOT NULL REFERENCES authors(id),
    cents INTEGER NOT NULL CHECK (cents > 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'sent', 'failed')),
    connector TEXT NOT NULL,
    connector_ref TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE entitlements (
    skill_id TEXT NOT NULL REFERENCES skills(id),
    buyer TEXT NOT NULL,
    purchase_id TEXT NOT NULL REFERENCES purchases(id),
    granted_at INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (skill_id, buyer)
) STRICT, WITHOUT ROWID;
