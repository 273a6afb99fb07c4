"""The engine's side: everything that imports or patches torch, run only in a child process.

`python -m meshwright.verify.engine` reads one JSON request a line on stdin and answers each with one
JSON line on stdout; `meshwright.verify.process.EngineProcess` is its other end. Nothing outside this
package may import its modules: torch would be loaded, and patched, in the caller's process.
"""
