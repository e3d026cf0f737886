#!/bin/sh
# Build the firmware and its test payload, and run them on QEMU's virt machine.
#
# usage: test.sh [harts...]		default: 1 2 4 64 512
#
# Environment:
#   CROSS_COMPILE  toolchain prefix	default: riscv64-linux-gnu-
#   QEMU           emulator		default: qemu-system-riscv64
#   QEMU_CPU_FLAGS -cpu arguments	default: rv64 rv64,sstc=off
#   TIMEOUT        seconds per run	default: 120
# Exit status: 0 if every test passed in every run, 1 otherwise.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cross=${CROSS_COMPILE-riscv64-linux-gnu-}
qemu=${QEMU:-qemu-system-riscv64}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM HUP

build() {	# linker script, sources..., output last
	script=$1; shift
	(cd "$here" && "${cross}gcc" -nostdlib -nostdinc -ffreestanding -static \
		-march=rv64imac_zicsr_zifencei -mabi=lp64 -mcmodel=medany -O2 \
		-Wall -Wextra -Werror -T "$script" "$@")
}
build firmware.ld head.S sbi.c -o "$out/firmware.elf"
build payload.ld payload-head.S payload.c -o "$out/payload.elf"

run() {		# harts, cpu
	log=$out/log
	start=$(date +%s)
	rc=0
	timeout "${TIMEOUT:-120}" "$qemu" -M virt -cpu "$2" -smp "$1" -m 512 \
		-display none -monitor none -serial stdio -nic none \
		-bios "$out/firmware.elf" -kernel "$out/payload.elf" \
		</dev/null >"$log" 2>"$out/err" || rc=$?
	took=$(($(date +%s) - start))
	# The exit status alone would miss a payload that never ran.
	if [ $rc = 0 ] && grep -q "^# harts $1\$" "$log" && ! grep -q '^not ok' "$log" &&
	   [ "1..$(grep -c '^ok ' "$log")" = "$(grep '^1\.\.' "$log" | tr -d '\r')" ]; then
		echo "PASS $1 harts, $2: $(grep -c '^ok ' "$log") tests, $took s"
	else
		sed 's/^/	/' "$log" "$out/err"
		echo "FAIL $1 harts, $2: exit status $rc, $took s"
		failed=1
	fi
}

failed=0
[ $# -gt 0 ] || set -- 1 2 4 64 512
for harts; do
	for cpu in ${QEMU_CPU_FLAGS:-rv64 rv64,sstc=off}; do
		run "$harts" "$cpu"
	done
done
exit $failed
