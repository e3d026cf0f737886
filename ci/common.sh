# Shared by the scripts beside it; sourced, not run.

# Everything is done from the top of the checkout.
cd "$(dirname "$0")/.."

# cargo of a rustup that has not been put on PATH yet.
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# as_root COMMAND...: root is asked for here and nowhere else.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		say "root is needed for: $*"
		exit 2
	fi
}

# install_packages PACKAGE...: says what, then installs it.
install_packages() {
	[ $# -gt 0 ] || return 0
	if ! command -v apt-get >/dev/null; then
		say "this system has no apt; install what corresponds to these Debian packages:"
		printf '  %s\n' "$@" >&2
		exit 2
	fi
	say "installing: $*"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$@"
}

# rust_works: whether the cargo on PATH can compile this project.
rust_works() {
	wanted=$(sed -n 's/^rust-version = "1\.\([0-9]*\)"/\1/p' Cargo.toml)
	have=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
	[ "${have:-0}" -ge "$wanted" ] && command -v cc >/dev/null
}

# install_rust: the distribution's own Rust, where it is new enough. Debian 12
# has a second, newer one for building web browsers.
install_rust() {
	rust_works && return 0
	! command -v apt-get >/dev/null || as_root apt-get -q update
	if apt-cache show cargo-web >/dev/null 2>&1; then
		install_packages cargo-web rustc-web gcc libc6-dev
	else
		install_packages cargo rustc gcc libc6-dev
	fi
	rust_works && return 0
	say "the distribution's Rust is too old (Cargo.toml has rust-version); install it with rustup"
	exit 2
}

# build_matrix: compiles the program; sets $matrix to it.
build_matrix() {
	cargo build --release --locked
	matrix=${CARGO_TARGET_DIR:-target}/release/matrix
}

# install_needs ARGUMENT...: what `matrix doctor ARGUMENT...` misses.
install_needs() {
	"$matrix" doctor "$@" >/dev/null && return 0
	# What a package is called depends on the release, which apt knows.
	! command -v apt-get >/dev/null || as_root apt-get -q update
	packages=$("$matrix" doctor --packages "$@") || true
	# One package a line; names have no spaces.
	# shellcheck disable=SC2086
	install_packages $packages
	"$matrix" doctor "$@" >/dev/null || {
		"$matrix" doctor "$@" >&2 || true
		say "some of it is still missing"
		exit 2
	}
}
