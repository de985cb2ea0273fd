// Package zmq holds the tests of package zmtp against genuine libzmq: run.sh.
// peer.py is the other side.
package zmq
