# Sourced by every stand-in.
#
# STAND_IN_TOOLS  PATH of the stand-ins themselves, whatever their caller's is
# STAND_IN_CALLS  file that gets a line for each call
# STAND_IN_ELF    program that kernels are made from
# STAND_IN_LOSE   symbol that the tree's rules do not let through
#
# How `make vmlinux` and QEMU behave is in the kernel's configuration
# (STAND_IN_MAKE, STAND_IN_QEMU), so that it can differ between cells.

PATH=$STAND_IN_TOOLS
LC_ALL=C
export PATH LC_ALL

noted() {
	echo "$*" >>"$STAND_IN_CALLS"
}

# value SYMBOL CONFIG: what a configuration says, without quotes.
value() {
	sed -n "s/^CONFIG_$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$2"
}

# Neither this process nor the daemon that it leaves in a session of its own
# heeds SIGTERM. They end by themselves should a test fail to end them.
stubborn() {
	trap '' TERM HUP INT
	setsid sleep 100 &
	sleep 100
}
