#!/bin/sh
# Build the firmware and its test payload, and run them on QEMU's virt machine.
#
# usage: test.sh [MACHINE...]		default: see the end
# A machine is HARTS, or HARTSxSOCKETS (a NUMA node each), and may be followed by
# options of QEMU's machine: 8x4,aclint=on.
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

# Arguments of QEMU that divide $1 harts and 512 MiB among $2 sockets.
numa() {
	node=0
	while [ "$2" -gt 1 ] && [ $node -lt "$2" ]; do
		share=$(($1 / $2))
		echo "-object memory-backend-ram,id=m$node,size=$((512 / $2))M"
		echo "-numa node,nodeid=$node,memdev=m$node,cpus=$((node * share))-$((node * share + share - 1))"
		node=$((node + 1))
	done
}

run() {		# machine, cpu
	options=virt
	size=${1%%,*}
	[ "$size" = "$1" ] || options=virt,${1#*,}
	harts=${size%x*}
	sockets=${size#"$harts"}
	sockets=${sockets#x}
	# Before 8.0, QEMU miswires the PLICs of several sockets.
	[ "${sockets:-1}" = 1 ] || options=$options,aia=aplic
	log=$out/log
	start=$(date +%s)
	rc=0
	# shellcheck disable=SC2046 # words on purpose
	timeout "${TIMEOUT:-120}" "$qemu" -M "$options" -cpu "$2" -smp "$harts" -m 512 \
		$(numa "$harts" "${sockets:-1}") \
		-display none -monitor none -serial stdio -nic none \
		-bios "$out/firmware.elf" -kernel "$out/payload.elf" \
		</dev/null >"$log" 2>"$out/err" || rc=$?
	took=$(($(date +%s) - start))
	# The exit status alone would miss a payload that never ran.
	if [ $rc = 0 ] && grep -q "^# harts $harts\$" "$log" && ! grep -q '^not ok' "$log" &&
	   [ "1..$(grep -c '^ok ' "$log")" = "$(grep '^1\.\.' "$log" | tr -d '\r')" ]; then
		echo "PASS $1 harts, $2: $(grep -c '^ok ' "$log") tests, $took s"
	else
		sed 's/^/	/' "$log" "$out/err"
		echo "FAIL $1 harts, $2: exit status $rc, $took s"
		failed=1
	fi
}

failed=0
[ $# -gt 0 ] || set -- 1 2 4 4,aclint=on 64 512 2x2 8x4 64x2,aclint=on 512x4
for machine; do
	for cpu in ${QEMU_CPU_FLAGS:-rv64 rv64,sstc=off}; do
		run "$machine" "$cpu"
	done
done
exit $failed
