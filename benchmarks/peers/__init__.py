"""The same small job written for each of grete's peers, each a program of its own.

Usage of each: PROGRAM BOOTSTRAP INPUT OUTPUT WORK DIRECTORY, where WORK is `count` (JSON in, a counter for each key,
JSON out) or `pass` (JSON in, JSON out). It runs until it is killed. Its checkpoints are on, as its users have them.
"""
