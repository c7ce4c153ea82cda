#!/bin/sh
# Installs svc without a compiler: fetches an archive of 'make dist', checks its SHA-256, and puts what is in it
# below PREFIX. Nothing is written there before the whole archive has been checked.
#
#   sh install.sh --from BASE_URL [--version V] [--prefix DIR] [--sha256 HEX]
#
# BASE_URL is where the archives lie: BASE_URL/svc-VERSION-TARGET.tar.gz, the same with .sha256, and a file 'latest'
# with the newest version. The project has no address of its own, so it must be given, here or in SVC_INSTALL_URL.
set -eu

# Elsewhere in tests.
restricts=${SVC_INSTALL_RESTRICTS:-/proc/sys/kernel/apparmor_restrict_unprivileged_userns}
profiles=${SVC_INSTALL_PROFILES:-/etc/apparmor.d}
from=${SVC_INSTALL_URL:-} prefix=${PREFIX:-${HOME:-}/.local} version='' sum=''

say() { printf '%s\n' "$*"; }
wrong() {
    say "install.sh: $*" >&2
    exit 1
}
usage() {
    say "usage: sh install.sh --from BASE_URL [--version V] [--prefix DIR (~/.local)] [--sha256 HEX]" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        --from | --version | --prefix | --sha256) [ $# -ge 2 ] || usage ;;
        *) usage ;;
    esac
    case $1 in
        --from) from=$2 ;;
        --version) version=$2 ;;
        --prefix) prefix=$2 ;;
        --sha256) sum=$2 ;;
    esac
    shift 2
done
[ -n "$from" ] || { say "install.sh: say where the archives are, with --from or SVC_INSTALL_URL" >&2; usage; }
from=${from%/}
case $from in
    https://* | http://* | file://*) ;;
    *) wrong "'$from' is no https://, http:// or file:// address" ;;
esac
case $prefix in
    *[[:space:]]*) wrong "the prefix '$prefix' has a blank, which the systemd unit cannot name" ;;
    /*) ;;
    *) wrong "the prefix '$prefix' is not absolute; give --prefix DIR" ;;
esac

fetch() { # fetch URL FILE
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 2 -o "$2" "$1" || wrong "$1 cannot be fetched"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -O "$2" "$1" || wrong "$1 cannot be fetched"
    else
        wrong "neither curl nor wget is here; install one of them"
    fi
}
sum_of() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1"
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1"
    else
        wrong "neither sha256sum nor shasum is here; the archive cannot be checked"
    fi | cut -d ' ' -f 1
}

case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) wrong "there are no archives for this processor, $(uname -m); build it with 'make install'" ;;
esac
case $(uname -s) in
    Linux) target=$machine-unknown-linux-gnu ;;
    Darwin) target=$machine-apple-darwin ;;
    *) wrong "there are no archives for this system, $(uname -s); build it with 'make install'" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

if [ -z "$version" ]; then
    fetch "$from/latest" "$work/latest"
    version=$(head -n 1 "$work/latest")
fi
case $version in
    '' | *[!0-9A-Za-z.+-]*) wrong "'$version' is no version" ;;
esac
name=svc-$version-$target
fetch "$from/$name.tar.gz" "$work/archive"
if [ -z "$sum" ]; then
    # It guards against what was damaged on its way. Against a false server only a sum from elsewhere does.
    fetch "$from/$name.tar.gz.sha256" "$work/sum"
    sum=$(cut -d ' ' -f 1 "$work/sum")
fi
[ ${#sum} -eq 64 ] || wrong "'$sum' is no SHA-256"
found=$(sum_of "$work/archive")
[ "$found" = "$(say "$sum" | tr A-F a-f)" ] ||
    wrong "the archive's SHA-256 is $found, and $sum was expected: nothing was installed"

# Only files and folders below its own name, and the second name of svc.
tar -tzf "$work/archive" >"$work/names" || wrong "the archive cannot be read"
while IFS= read -r path; do
    case $path in
        *..* | /*) wrong "the archive has a path that leads out of it: $path" ;;
        "$name" | "$name/"*) ;;
        *) wrong "the archive has a path that is not below $name: $path" ;;
    esac
done <"$work/names"
tar -xzf "$work/archive" -C "$work"
links=$(find "$work/$name" ! -type f ! -type d | while IFS= read -r path; do
    case ${path#"$work/$name/"} in
        bin/svc-cli | share/bash-completion/completions/svc-cli) [ "$(readlink "$path")" = svc ] || say "$path" ;;
        *) say "$path" ;;
    esac
done)
[ -z "$links" ] || wrong "the archive has what is neither file nor folder: $links"
[ -f "$work/$name/bin/svc" ] || wrong "the archive has no bin/svc"
told=$("$work/$name/bin/svc" version --quiet) || wrong "its svc does not run on this machine"
[ "$told" = "$version" ] || wrong "its svc says that it is version '$told', not $version"

# The unit names the folder of the program.
unit=$work/$name/share/systemd/user/svc@.service
if [ -f "$unit" ]; then
    sed "s|^ExecStart=.*/svc start|ExecStart=$(say "$prefix/bin" | sed 's/[&|\\]/\\&/g')/svc start|" "$unit" >"$work/unit"
    cat "$work/unit" >"$unit"
fi

# The AppArmor profile names the program.
profile=$work/$name/share/svc/apparmor/svc
if [ -f "$profile" ]; then
    sed "s|^profile svc \"[^\"]*/svc\"|profile svc \"$(say "$prefix/bin" | sed 's/[&|\\]/\\&/g')/svc\"|" "$profile" >"$work/profile"
    cat "$work/profile" >"$profile"
fi

# Each file comes under another name first: a program that runs is replaced, never written into.
(cd "$work/$name" && find . -type d) | while IFS= read -r dir; do
    mkdir -p "$prefix/$dir"
done
(cd "$work/$name" && find . ! -type d) | while IFS= read -r file; do
    new=$prefix/$file.new.$$
    cp -P "$work/$name/$file" "$new" && mv -f "$new" "$prefix/$file" || wrong "$prefix/$file cannot be written"
done

say "installed svc $version below $prefix"
case :${PATH:-}: in
    *:"$prefix/bin":*) ;;
    *) say "put it on your PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
# Where AppArmor gives user namespaces to no program that it does not know, agents get rooms by a profile only.
profile=$prefix/share/svc/apparmor/svc
if [ -f "$profile" ] && [ "$(cat "$restricts" 2>/dev/null)" = 1 ]; then
    if [ "$(id -u)" = 0 ] && command -v apparmor_parser >/dev/null 2>&1; then
        install -m 644 "$profile" "$profiles/svc" && apparmor_parser -r "$profiles/svc" ||
            say "the AppArmor profile $profiles/svc cannot be loaded: agents get no rooms until it is"
    else
        say "for rooms of agents, let AppArmor know svc:"
        say "  sudo install -m 644 $profile $profiles/svc && sudo apparmor_parser -r $profiles/svc"
    fi
fi
say "next: svc demo"
