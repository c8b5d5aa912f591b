"""Write Spark's rows as records: conversion, destination topics, sending, transactions."""
